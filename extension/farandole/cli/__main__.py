"""``farandole login``, ``farandole logout`` and ``farandole status``."""

from __future__ import annotations

import argparse
import asyncio
import getpass
import re
import sys
import webbrowser
from collections.abc import Sequence

from farandole.cli import check, credentials
from farandole.cli.credentials import Login
from farandole.exceptions import FarandoleError, UsageError

TOKEN = re.compile("[!-~]+")
"""Matches what can be a token: visible characters of ASCII. Others cannot be sent in the header of a request."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    command = argparse.ArgumentParser(prog="farandole", description="Lead clusters on a hub from this machine.")
    actions = command.add_subparsers(dest="action", required=True, metavar="login, logout or status")
    login = actions.add_parser("login", help="keep a token for a hub", description=LOGIN)
    login.add_argument("url", help="the hub's address in the browser, e.g. https://hub.example.org")
    logout = actions.add_parser("logout", help="forget the token for a hub")
    logout.add_argument("url", nargs="?", help="the hub's address (default: the only hub)")
    actions.add_parser("status", help="show the hubs, the users and whether the tokens are valid")
    return command


LOGIN = """Open the hub's Token page, read the token that you make there, check it and keep it. To read the token from a
pipe instead, write `... | farandole login URL`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Execute a command line. Return the exit status: 0, or 1 after an error."""
    options = parser().parse_args(arguments)
    try:
        {"login": _login, "logout": _logout, "status": _status}[options.action](options)
    except (FarandoleError, OSError) as exc:
        print(f"farandole {options.action}: {exc}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _login(options: argparse.Namespace) -> None:
    url = credentials.address_of(options.url)
    asyncio.run(check.check_hub(url))
    if credentials.is_cleartext(url):
        print(
            f"farandole login: {url} is not encrypted, so others in the network can read the token. Use an address "
            "that begins with https:// if the hub has one.",
            file=sys.stderr,
        )
    token = _read_token(url)
    user = asyncio.run(check.user_of(url, token))
    credentials.keep(Login(url=url, user=user, token=token))
    print(f"Logged in at {url} as {user}. In a notebook: %cluster start --hub {url}")


def _read_token(url: str) -> str:
    """Return the token that the user pastes, or the first line of a pipe. Messages never contain it."""
    try:
        token = (_ask_for_token(url) if sys.stdin.isatty() else sys.stdin.readline()).strip()
    except EOFError:
        token = ""
    except UnicodeDecodeError:
        token = "not a token"
    if not token:
        raise UsageError("there was no token; paste the one that the hub's Token page shows, or send it by a pipe")
    if not TOKEN.fullmatch(token):
        raise UsageError(
            "this is not a token, because it has spaces or special characters; copy the one that the hub's Token page "
            "shows"
        )
    return token


def _ask_for_token(url: str) -> str:
    page = f"{url}/hub/token"
    print(
        f"Make a token at {page}\n"
        f"  Permissions: {check.PERMISSIONS}\n"
        "  Token expires in: choose a time, e.g. 1 Month\n"
        "Paste it here. It is not shown."
    )
    webbrowser.open(page)
    return getpass.getpass("Token: ")


def _logout(options: argparse.Namespace) -> None:
    login = credentials.login_for(options.url)
    if login is None:
        raise UsageError(f"there is no login for {options.url or 'any hub'}; `farandole status` lists them")
    credentials.forget(login.url)
    print(f"Logged out at {login.url}. The token stays valid until you revoke it at {login.url}/hub/token")


def _status(_: argparse.Namespace) -> None:
    known = credentials.logins()
    if not known:
        print("There is no login. Run: farandole login https://hub.example.org")
    for url, login in sorted(known.items()):
        print(f"{url}  {login.user}  {_state(login)}")


def _state(login: Login) -> str:
    try:
        asyncio.run(check.user_of(login.url, login.token))
    except FarandoleError as exc:
        return str(exc)
    return "the token is valid"


if __name__ == "__main__":
    sys.exit(main())
