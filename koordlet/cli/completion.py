"""``koordlet completion SHELL``."""

from __future__ import annotations

import argparse
from typing import Any

from koordlet.cli.arguments import Argument
from koordlet.cli.main import Exit, build_parser, named


def main(args: argparse.Namespace) -> int:
    print(koordlet_script(args.shell), end="")
    return Exit.OK


def koordlet_script(shell: str) -> str:
    """What a shell reads to complete ``koordlet``."""
    if shell == "fish":  # which shtab does not know
        from koordlet.cli.fish import script

        return script()
    import shtab

    parser = build_parser(attach=_complete)
    return str(shtab.complete(parser, shell=shell, preamble=_PREAMBLE)) + "\n"


NAMES = "koordlet pods --names 2>/dev/null"
"""Prints what pods and applications a daemon here knows, nothing where there is none."""
_FUNCTION = "_koordlet_names"
_PREAMBLE = {
    "bash": f'{_FUNCTION}() {{\n  compgen -W "$({NAMES})" -- "$1"\n}}\n',
    "zsh": f'{_FUNCTION}() {{\n  compadd -- ${{(f)"$({NAMES})"}}\n}}\n',
}


def _complete(argument: Argument, action: Any) -> None:
    """Leaves on the action what shtab reads there."""
    import shtab

    if argument.is_path:
        action.complete = shtab.FILE
    elif argument.is_name:
        action.complete = {"bash": _FUNCTION, "zsh": _FUNCTION, "tcsh": f"`{NAMES}`"}
    elif argument.words:
        action.choices = sorted(named(argument.words))
