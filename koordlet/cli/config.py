"""``koordlet config check|show|sample|schema|reload``."""

from __future__ import annotations

import argparse

import msgspec

from koordlet.admin.model import ArmedView, ConfigView, ReloadView
from koordlet.cli import output
from koordlet.cli.connect import connect
from koordlet.cli.main import Exit
from koordlet.config.errors import ConfigError, ConfigErrors, in_file_order


class Checked(msgspec.Struct, frozen=True):
    """``warnings``: what is not there on this machine. ``armed``: what may end or freeze work."""

    file: str
    valid: bool
    errors: tuple[ConfigError, ...] = ()
    warnings: tuple[ConfigError, ...] = ()
    armed: tuple[ArmedView, ...] = ()


def check(args: argparse.Namespace) -> int:
    from koordlet.config.load import load
    from koordlet.engine.absent import warnings
    from koordlet.kernel.linux import LinuxHost
    from koordlet.views.armed import arms

    host = None if args.file_only else LinuxHost()
    try:
        loaded = load(args.file, host=host)
    except ConfigErrors as found:
        answer = Checked(args.file, valid=False, errors=found.errors, warnings=found.warnings)
    else:
        noticed = loaded.warnings if host is None else (*loaded.warnings, *warnings(host, loaded))
        answer = Checked(args.file, valid=True, warnings=in_file_order(noticed), armed=arms(loaded))
    output.emit(answer, args.output, lambda: _check_lines(answer))
    return Exit.OK if answer.valid else Exit.BAD


def _check_lines(answer: Checked) -> list[str]:
    if not answer.valid:
        found = [str(error) for error in answer.errors]
    else:
        found = [f"{answer.file}: valid"]
        found += [
            f"armed: {each.name} {each.does} when {each.when}; by {each.by}"
            for each in answer.armed
        ]
    found += [f"warning: {each}" for each in answer.warnings]
    return [line for each in found for line in output.wrap(output.clean(each), "", "  ")]


def show(args: argparse.Namespace) -> int:
    with connect(args) as client:
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


def schema(args: argparse.Namespace) -> int:
    from koordlet.config.json_schema import schema as document

    print(output.document(document(), "json"), end="")
    return Exit.OK


def reload(args: argparse.Namespace) -> int:
    with connect(args) as client:
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
