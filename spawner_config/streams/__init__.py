"""The hub's NATS server for streams of records: its configuration, and an account at it for each user."""
