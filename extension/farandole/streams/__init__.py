"""Streams of records: a connection to the hub's NATS server, in notebooks, endpoints and programs of users.

Each user of a hub has an account at the server, with subjects and streams that no other user can read or write.
"""

from farandole.streams.broker import Broker as Broker
from farandole.streams.broker import hub_broker as hub_broker
from farandole.streams.client import connect as connect

__all__ = ["Broker", "connect", "hub_broker"]
