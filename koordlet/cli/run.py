"""``koordlet run``: the daemon in the foreground."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys

import structlog

from koordlet.cli.arguments import DEFAULT_CONFIG
from koordlet.cli.main import Exit
from koordlet.config.errors import ConfigErrors
from koordlet.config.load import Loaded
from koordlet.daemon.lifecycle import Daemon
from koordlet.daemon.parts import CannotStartError
from koordlet.daemon.reload import read_config
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.notify import Notifier


def main(args: argparse.Namespace) -> int:
    try:
        loaded = _read(args)
    except ConfigErrors as errors:
        for error in errors.errors:
            print(error, file=sys.stderr)
        return Exit.BAD
    _configure_log(loaded.config.daemon.log_level)
    try:
        asyncio.run(_run(loaded, args))
    except CannotStartError as error:
        print(f"koordlet run: {error}", file=sys.stderr)
        return Exit.BAD
    return Exit.OK


async def _run(loaded: Loaded, args: argparse.Namespace) -> None:
    def reload() -> Loaded:
        fresh = _read(args)
        _configure_log(fresh.config.daemon.log_level)
        return fresh

    await Daemon(LinuxHost(), loaded, reload, Notifier()).run()


def _read(args: argparse.Namespace) -> Loaded:
    """A node without a file at the usual place runs on the defaults; a file that was named must
    be there."""
    missing_ok = args.config == DEFAULT_CONFIG
    return read_config(args.config, observe=args.observe, missing_ok=missing_ok)


def _configure_log(level: str) -> None:
    """One line an event, ``key=value``, to stderr. systemd adds the time; a terminal gets one."""
    stamp = structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            *([stamp] if sys.stderr.isatty() else []),
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(key_order=["level", "event"], bool_as_flag=False),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
