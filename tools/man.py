"""Writes manual pages from the commands' parsers and from the configuration's declarations:
``tools/man.py DIRECTORY`` makes koordlet.1, koord-scheduler.1 and koordlet.toml.5 there."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from koord_scheduler.cli.main import build_parser as scheduler_parser
from koordlet import __version__
from koordlet.cli.main import build_parser
from koordlet.config.sample import sample

_SEE = {
    "koordlet": "koordlet.toml(5), koord\\-scheduler(1), systemctl(1)",
    "koord-scheduler": "koordlet(1), kubectl(1)",
}
_FILES = {
    "koordlet": (
        ("/etc/koordlet/koordlet.toml", "The configuration, koordlet.toml(5)."),
        ("/var/lib/koordlet", "Journal of original values, decisions, measurements."),
        ("/run/koordlet/koordlet.sock", "The local API, which the commands talk to."),
    ),
    "koord-scheduler": (("~/.kube/config", "The API server, outside of a pod."),),
}
_TOML_HEAD = (
    "koordlet reads this file at its start, and again when it changes. Every key has a default, so "
    "an empty file is valid. Below is each key with its default; koordlet config sample prints "
    "the same, koordlet config check FILE checks a file, and koordlet config show prints the "
    "values in force with where each came from."
)


def escaped(text: str) -> str:
    """For a line of running text: roff's own characters, and a dot at the beginning."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text[:1] in (".", "'") else text


def of_parser(parser: argparse.ArgumentParser) -> str:
    """The page of a command with all its commands below it."""
    name = parser.prog
    lines = [
        *_head(name, 1, "Administration"),
        f"{escaped(name)} \\- {escaped(_first(parser.description or ''))}",
        ".SH SYNOPSIS",
        f".B {escaped(name)}",
        ".I COMMAND",
        "[\\fIOPTION\\fR ...]",
        ".SH DESCRIPTION",
        escaped(parser.description or ""),
        ".SH COMMANDS",
        *_commands(parser, ()),
        ".SH EXIT STATUS",
        escaped((parser.epilog or "").removeprefix("Exit codes: ")),
        ".SH FILES",
    ]
    for path, about in _FILES[name]:
        lines += [".TP", f".I {escaped(path)}", escaped(about)]
    return "\n".join([*lines, ".SH SEE ALSO", _SEE[name]]) + "\n"


def of_configuration() -> str:
    lines = [
        *_head("koordlet.toml", 5, "File formats"),
        "koordlet.toml \\- configuration of the koordlet daemon",
        ".SH DESCRIPTION",
        escaped(_TOML_HEAD),
        ".SH KEYS",
        ".nf",
        *(escaped(line) for line in sample().splitlines()),
        ".fi",
        ".SH SEE ALSO",
        "koordlet(1)",
    ]
    return "\n".join(lines) + "\n"


def _head(name: str, section: int, manual: str) -> tuple[str, ...]:
    title = escaped(name.upper())
    return (f'.TH {title} {section} "" "koordlet {__version__}" "{manual}"', ".SH NAME")


def _first(text: str) -> str:
    """What stands before the colon names the thing; whatis(1) shows one short line."""
    words = text.partition(":")[0].rstrip(".")
    return words[:1].lower() + words[1:]


def _commands(parser: argparse.ArgumentParser, above: tuple[str, ...]) -> Iterator[str]:
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            continue
        for name, sub in action.choices.items():
            words = (*above, name)
            inner = [*_commands(sub, words)]
            if inner:
                yield from inner
                continue
            yield f".SS {escaped(' '.join(words))}"
            usage = " ".join(sub.format_usage().removeprefix("usage: ").split())
            yield f"\\fI{escaped(usage)}\\fR"
            yield ".PP"
            yield escaped(f"{sub.description or ''}.".replace("..", "."))
            yield from _options(sub)
            if sub.epilog:
                yield from (".PP", ".nf", *map(escaped, sub.epilog.splitlines()), ".fi")


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    formatter = parser._get_formatter()
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction) or action.help == argparse.SUPPRESS:
            continue
        yield ".TP"
        yield f".B {escaped(formatter._format_action_invocation(action))}"
        yield escaped(formatter._expand_help(action)) if action.help else "\\&"


def pages() -> dict[str, str]:
    """File name -> text."""
    return {
        "koordlet.1": of_parser(build_parser()),
        "koord-scheduler.1": of_parser(scheduler_parser()),
        "koordlet.toml.5": of_configuration(),
    }


def main(directory: Path) -> int:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (directory / name).write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
