"""``koordlet config check|show|sample|schema|reload``."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

import msgspec

from koordlet.admin.model.configuration import ConfigView, ReloadView
from koordlet.admin.model.status import ArmedView
from koordlet.cli import output
from koordlet.cli.connect import connect
from koordlet.cli.main import Exit
from koordlet.config.errors import ConfigError, ConfigErrors, in_file_order

if TYPE_CHECKING:
    from koordlet.cli.config_here import Firing, Idle
    from koordlet.config.load import Loaded
    from koordlet.kernel.host import Host


class Checked(msgspec.Struct, frozen=True):
    """``warnings``: what is not there on this machine. ``armed``: what may end or freeze work;
    ``firing``: whether it would now. ``idle``: what is asked for and can do nothing here.
    ``notes``: what could not be looked at."""

    file: str
    valid: bool
    errors: tuple[ConfigError, ...] = ()
    warnings: tuple[ConfigError, ...] = ()
    armed: tuple[ArmedView, ...] = ()
    firing: tuple[Firing, ...] = ()
    idle: tuple[Idle, ...] = ()
    notes: tuple[str, ...] = ()


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
        if host is not None:
            answer = _on_this_machine(host, loaded, answer)
    output.emit(answer, args.output, lambda: _check_lines(answer))
    return Exit.OK if answer.valid else Exit.BAD


def _on_this_machine(host: Host, loaded: Loaded, answer: Checked) -> Checked:
    from koordlet.cli.config_here import firing, idle
    from koordlet.kernel.parse import ParseError

    armed = frozenset(each.name for each in answer.armed)
    answer = msgspec.structs.replace(answer, firing=tuple(firing(host, loaded, armed)))
    if os.geteuid() != 0:
        note = "what this kernel can do is not known: trying it takes root"
        return msgspec.structs.replace(answer, notes=(note,))
    output.log_to_stderr()
    try:
        return msgspec.structs.replace(answer, idle=tuple(idle(host, loaded)))
    except (OSError, ParseError) as error:
        return msgspec.structs.replace(answer, notes=(f"the kernel cannot be tried: {error}",))


def _check_lines(answer: Checked) -> list[str]:
    if not answer.valid:
        found = [str(error) for error in answer.errors]
    else:
        found = [f"{answer.file}: valid"]
        now = {each.name: f"; {_fires(each)}" for each in answer.firing}
        found += [
            f"armed: {each.name} {each.does} when {each.when}{now.get(each.name, '')}; by {each.by}"
            for each in answer.armed
        ]
        if not answer.armed:
            found.append("nothing is armed: no eviction is switched on")
        found += [f"{each.name} does nothing on this kernel: {each.why}" for each in answer.idle]
        found += [f"note: {each}" for each in answer.notes]
    found += [f"warning: {each}" for each in answer.warnings]
    return [line for each in found for line in output.wrap(output.clean(each), "", "  ")]


def _fires(each: Firing) -> str:
    verb = "would fire now" if each.would_fire else "would not fire now"
    return f"{verb} ({each.percent:.0f} % in use, threshold {each.threshold} %)"


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
