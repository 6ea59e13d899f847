"""``koordlet run``: the daemon in the foreground."""

from __future__ import annotations

import argparse
import asyncio
import sys

import structlog

from koordlet.cli.arguments import DEFAULT_CONFIG
from koordlet.cli.main import Exit
from koordlet.cli.process import logs
from koordlet.config.errors import ConfigErrors
from koordlet.config.load import Loaded
from koordlet.daemon.lifecycle import Daemon
from koordlet.daemon.own_cpus import OwnCpus
from koordlet.daemon.reload import read_config
from koordlet.engine.parts import CannotStartError
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.proc.affinity import move_threads, own_cpus
from koordlet.kernel.proc.slice import ask_for_short_slice
from koordlet.serving.notify import Notifier


def main(args: argparse.Namespace) -> int:
    try:
        loaded = _read(args)
    except ConfigErrors as errors:
        for error in errors.errors:
            print(error, file=sys.stderr)
        return Exit.BAD
    logs.configure(loaded.config.daemon.log_level)
    _warn(loaded)
    try:
        asyncio.run(_run(loaded, args))
    except CannotStartError as error:
        print(f"koordlet run: {error}", file=sys.stderr)
        return Exit.BAD
    return Exit.OK


async def _run(loaded: Loaded, args: argparse.Namespace) -> None:
    def reload() -> Loaded:
        fresh = _read(args)
        logs.configure(fresh.config.daemon.log_level)
        _warn(fresh)
        return fresh

    # Before threads are made, which inherit it.
    own_slice = ask_for_short_slice()
    cpus = OwnCpus(own_cpus(), move_threads)
    await Daemon(LinuxHost(), loaded, reload, Notifier(), (own_slice,), cpus).run()


def _read(args: argparse.Namespace) -> Loaded:
    """A node without a file at the usual place runs on the defaults; a file that was named must
    be there."""
    missing_ok = args.config == DEFAULT_CONFIG
    return read_config(args.config, LinuxHost(), observe=args.observe, missing_ok=missing_ok)


def _warn(loaded: Loaded) -> None:
    for each in loaded.warnings:
        structlog.get_logger().warning("configuration", warning=str(each))
