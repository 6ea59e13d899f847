"""``koordlet hooks``: what each hook would do to a pod, at which stage, and why.

The daemon tells it of pods that run here. A pod in a file is looked at without any daemon, as if
it were alone on this machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from itertools import groupby

from koordlet.admin.client import NotReachableError
from koordlet.admin.runtime import HooksView
from koordlet.cli import output
from koordlet.cli.arguments import DEFAULT_CONFIG
from koordlet.cli.connect import connect
from koordlet.cli.main import Exit, complain, warn
from koordlet.decision.strategy import Action, HookRow, Level


def main(args: argparse.Namespace) -> int:
    """1 where something in the pod of a file is refused."""
    if args.file and args.target:
        return complain("give a pod of this node or a file, not both", Exit.USAGE)
    view = _ask_daemon(args)
    if view is None:
        view = _look(args)
    if view is None:
        return Exit.BAD
    output.emit(view, args.output, lambda: lines(view))
    return Exit.BAD if args.file and view.faults else Exit.OK


def _ask_daemon(args: argparse.Namespace) -> HooksView | None:
    """None: it is not needed, or does not run and the table of hooks can do without it."""
    if args.file or (args.no_probe and not args.target):
        return None
    try:
        with connect(args) as client:
            return client.hooks(args.target)
    except NotReachableError as error:
        if args.target:
            raise
        warn(f"{error} What follows was found without it.")
        return None


def _look(args: argparse.Namespace) -> HooksView | None:
    """None: said why. Raises ConfigErrors."""
    from koordlet.cli.show.hooks_here import look
    from koordlet.config.load import load
    from koordlet.kernel.parse import ParseError

    output.log_to_stderr()
    try:
        loaded = load(args.config or DEFAULT_CONFIG, missing_ok=args.config is None)
        return look(loaded, args.file, try_kernel=not args.no_probe)
    except (OSError, ParseError) as error:
        complain(f"this machine cannot be looked at: {error}", Exit.BAD)
        return None


def lines(view: HooksView) -> list[str]:
    if not view.target:
        return [line for row in view.hooks for line in _about_hook(row)]
    found = output.wrap(output.clean(f"{view.target}: {view.matched}"))
    for subject, actions in groupby(view.actions, key=_subject):
        found += ["", subject]
        for action in actions:
            found += _about_action(action)
    acting = {action.hook for action in view.actions}
    idle = [f"{row.name}: {_why_not(row)}" for row in view.hooks if row.name not in acting]
    refused = [output.clean(f"{fault.path}: {fault.message}") for fault in view.faults]
    return [
        *found,
        *output.section("Refused inputs", refused),
        *output.section("No word from", idle),
    ]


def _about_hook(row: HookRow) -> Iterator[str]:
    state = "on" if row.enabled else "off"
    if not row.available:
        state += ", not possible here"
    needs = (
        each.feature if each.available else f"{each.feature} (missing: {each.why})"
        for each in row.needs
    )
    facts: Mapping[str, str] = {
        "levels": ", ".join(row.levels),
        "asked at": ", ".join(row.stages) or "no stage; it is reconciled",
        "sets": ", ".join(row.writes),
        "overrides": ", ".join(row.overrides),
        "needs one of" if len(row.needs) > 1 else "needs": "; ".join(needs),
        "without": row.without,
    }
    yield f"{row.name} ({state})"
    for name, text in facts.items():
        if text:
            yield from output.wrap(output.clean(f"{name}: {text}"), "  ", "    ")


def _subject(action: Action) -> str:
    name = f" {action.container}" if action.level is Level.CONTAINER else ""
    return output.clean(f"{action.level}{name} ({action.cgroup})")


def _about_action(action: Action) -> list[str]:
    what = f"{action.name} = {action.value}" if action.name else action.kind
    if action.name and action.kind != "setting":
        what = f"{action.kind} {what}"
    when = f", at {', '.join(action.stages)}" if action.stages else ""
    overridden = f"; {action.overridden_by} overrides it" if action.overridden_by else ""
    return [
        *output.wrap(output.clean(f"{what}, by {action.hook}{when}{overridden}"), "  ", "    "),
        *output.wrap(output.clean(action.why.text), "    "),
        *(line for text in _has(action) for line in output.wrap(output.clean(text), "    ")),
    ]


def _has(action: Action) -> Iterator[str]:
    """What is there instead of what should be; nothing where it is the same."""
    if action.missed:
        has = "does not have it" if action.has is None else f"has {action.has}"
        needs = "" if action.kind == "env" else " (mounts and devices need NRI)"
        yield f"{has}: the container was created without it; restart the pod to mend that{needs}"
    elif action.has not in (None, action.value) and not action.overridden_by:
        yield f"has {action.has}"


def _why_not(row: HookRow) -> str:
    if not row.enabled:
        return "switched off"
    if not row.available:
        return f"not possible here{f': {row.without}' if row.without else ''}"
    if row.levels == (Level.NODE,):
        return "it speaks about the whole node"
    return "nothing in this pod asks for it"
