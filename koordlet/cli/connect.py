"""Which daemon a command talks to."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from koordlet.admin import DEFAULT_SOCKET
from koordlet.admin.client import Client
from koordlet.cli import settings
from koordlet.cli.arguments import SOCKET_VARIABLE

if TYPE_CHECKING:
    from koordlet.config.schema import Config


def connect(args: argparse.Namespace) -> Client:
    """A client of the daemon. Raises NotReachableError, and ConfigErrors where the file of
    ``--config`` does not say where the daemon is and is not valid."""
    return Client(named_socket(args) or _configured(args.config))


def socket_of(args: argparse.Namespace, config: Config) -> str:
    """``--socket``, else the one in ``--config``, else ``KOORDLET_SOCKET``, else the one in
    ``config``, that of the default file."""
    return named_socket(args) or config.api.socket


def named_socket(args: argparse.Namespace) -> str:
    """``--socket``, else ``KOORDLET_SOCKET`` where no file is named; empty without them."""
    from_environment = "" if args.config else os.environ.get(SOCKET_VARIABLE, "")
    return args.socket or from_environment


def _configured(file: str | None) -> str:
    """The key ``api.socket``. A whole configuration is read only where the user names a file
    without that key: what reads keys needs every part of the daemon."""
    socket = settings.peek(file, "api", "socket")
    if socket or file is None:
        return socket or DEFAULT_SOCKET
    return settings.load_named(file).api.socket
