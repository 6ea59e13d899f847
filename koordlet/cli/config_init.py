"""``koordlet config init``: a first configuration from what runs here."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable

from koordlet.cli import output
from koordlet.cli.main import Exit, complain
from koordlet.config.errors import ConfigErrors
from koordlet.config.init import Machine, Unit, look, text
from koordlet.config.load import load
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.parse import ParseError

STDOUT = "-"
_ANSWERS = {"l": "LS", "b": "BE", "s": ""}
_QUESTION = "LS (latency-sensitive), BE (best-effort) or skip?"


def main(args: argparse.Namespace) -> int:
    file = args.file
    if file != STDOUT and os.path.exists(file) and not args.force:
        return complain(f"{file} is there already; --force replaces it, - prints", Exit.BAD)
    try:
        host = LinuxHost()
        machine = look(host, detect(host))
    except (OSError, ParseError) as error:
        _tell(f"koordlet: this machine's units cannot be listed: {error}")
        machine = Machine((), "web+batch")
    try:
        units = machine.units if args.yes else _asked(machine.units)
    except EOFError:
        return complain("no answer; --yes takes what the names tell", Exit.USAGE)
    chosen = [unit for unit in units if unit.qos]
    left_out = [unit.name for unit in units if not unit.qos]
    found = text(args.preset or machine.preset, chosen, left_out)
    if file == STDOUT:
        print(found, end="")
        return Exit.OK
    return _write(file, found, chosen)


def _asked(units: Iterable[Unit]) -> list[Unit]:
    """Each unit with the class that the user gives it. Raises EOFError."""
    found = []
    units = list(units)
    if units:
        _tell(f"{len(units)} units run here. Enter takes what stands in brackets.")
    for unit in units:
        default = unit.qos or "skip"
        answer = None
        while answer is None:
            _tell(f"{output.clean(unit.name)}: {_QUESTION} [{default}] ", end="")
            line = sys.stdin.readline()
            if not line:
                raise EOFError
            answer = _ANSWERS.get((line.strip() or default)[0].lower())
        found.append(unit._replace(qos=answer))
    return found


def _write(file: str, found: str, chosen: list[Unit]) -> int:
    """Nothing that the daemon would refuse takes the place of ``file``."""
    new = f"{file}.new"
    os.makedirs(os.path.dirname(os.path.abspath(file)), exist_ok=True)
    with open(new, "w") as stream:
        stream.write(found)
    try:
        load(new)
    except ConfigErrors as error:
        return complain(f"left in {new}, which is not valid: {error.errors[0]}", Exit.BAD)
    os.replace(new, file)
    _tell(f"{file}: {len(chosen)} applications, {found.partition(':')[0].lstrip('# ')}.")
    _tell(f"Next: `koordlet config check {file}`, then `koordlet run --observe --config {file}`.")
    return Exit.OK


def _tell(line: str, end: str = "\n") -> None:
    """To stderr: stdout may be the configuration."""
    print(line, file=sys.stderr, end=end, flush=True)
