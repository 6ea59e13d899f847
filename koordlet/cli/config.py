"""``koordlet config check|show|sample|reload``."""

from __future__ import annotations

import argparse

import msgspec

from koordlet.admin.client import Client
from koordlet.admin.model import ConfigView, ReloadView
from koordlet.cli import output
from koordlet.cli.main import Exit
from koordlet.config.errors import ConfigError


class Checked(msgspec.Struct, frozen=True):
    file: str
    valid: bool
    errors: tuple[ConfigError, ...] = ()


def check(args: argparse.Namespace) -> int:
    from koordlet.config.load import check as find_errors

    errors = find_errors(args.file)
    answer = Checked(args.file, not errors, errors)
    output.emit(answer, args.output, lambda: _check_lines(answer))
    return Exit.OK if answer.valid else Exit.BAD


def _check_lines(answer: Checked) -> list[str]:
    if answer.valid:
        return [f"{answer.file}: valid"]
    return [output.clean(str(error)) for error in answer.errors]


def show(args: argparse.Namespace) -> int:
    with Client(args.socket) as client:
        answer = client.config()
    output.emit(answer, args.output, lambda: _show_lines(answer))
    return Exit.OK


def _show_lines(answer: ConfigView) -> list[str]:
    return output.columns(
        ("KEY", "VALUE", "FROM"), ((v.key, v.value, v.origin) for v in answer.values)
    )


def sample(args: argparse.Namespace) -> int:
    from koordlet.config.sample import sample as text

    print(text(), end="")
    return Exit.OK


def reload(args: argparse.Namespace) -> int:
    with Client(args.socket) as client:
        answer = client.reload()
    output.emit(answer, args.output, lambda: _reload_lines(answer))
    return Exit.OK if answer.ok else Exit.BAD


def _reload_lines(answer: ReloadView) -> list[str]:
    if not answer.ok:
        return [
            "The new configuration is kept out, the previous one stays in force:",
            *(
                "  " + output.clean(": ".join(filter(None, (e.subject, e.path, e.message))))
                for e in answer.errors
            ),
        ]
    found = [f"changed: {key}" for key in answer.changed] or ["Nothing has changed."]
    return found + [f"taken up at the next start only: {key}" for key in answer.needs_restart]
