"""Writes the shells' completion scripts where Debian has them: ``tools/completions.py
SHARE_DIRECTORY``, which is ``/usr/share`` of a package."""

from __future__ import annotations

import sys
from pathlib import Path

import shtab

from koord_scheduler.cli.main import build_parser as scheduler_parser
from koordlet.cli.completion import koordlet_script

_PLACES = {
    "bash": "bash-completion/completions/{}",
    "zsh": "zsh/vendor-completions/_{}",
    "fish": "fish/vendor_completions.d/{}.fish",
}


def main(share: Path) -> int:
    for shell, place in _PLACES.items():
        _write(share / place.format("koordlet"), koordlet_script(shell))
        if shell != "fish":  # which shtab does not know
            script = shtab.complete(scheduler_parser(), shell=shell)
            _write(share / place.format("koord-scheduler"), script)
    return 0


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if text.endswith("\n") else f"{text}\n")


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
