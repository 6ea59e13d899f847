"""Which daemon a command talks to."""

from __future__ import annotations

import argparse
import os

from koordlet.admin.client import Client
from koordlet.cli.arguments import SOCKET_VARIABLE
from koordlet.cli.settings import find
from koordlet.config.load import load
from koordlet.config.schema import Config


def connect(args: argparse.Namespace) -> Client:
    """A client of the daemon. Raises NotReachableError, and ConfigErrors where the file of
    ``--config`` is not valid; the default file counts only as far as it can be read."""
    config = load(args.config).config if args.config else find(None).config
    return Client(socket_of(args, config))


def socket_of(args: argparse.Namespace, config: Config) -> str:
    """``--socket``, else the one in ``--config``, else ``KOORDLET_SOCKET``, else the one in
    ``config``, that of the default file."""
    from_environment = "" if args.config else os.environ.get(SOCKET_VARIABLE, "")
    return args.socket or from_environment or config.api.socket
