"""What the package and the image are made of, without making them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from koordlet import __version__
from koordlet.cli.commands import COMMANDS
from koordlet.cli.main import build_parser
from tests.deploy.objects import DEPLOY
from tools.completions import main as completions
from tools.image import instructions
from tools.man import escaped, pages

ROOT = DEPLOY.parent
_MACRO = re.compile(r"\.(TH|SH|SS|TP|PP|B|I|nf|fi)( |$)")


def test_every_command_has_its_place_in_the_manual() -> None:
    text = pages()["koordlet.1"]
    for command in COMMANDS:
        names = [f"{command.name} {child.name}" for child in command.children] or [command.name]
        for name in names:
            assert f"\n.SS {escaped(name)}\n" in text, name


@pytest.mark.parametrize("name", list(pages()))
def test_no_text_is_taken_for_a_request_of_roff(name: str) -> None:
    for line in pages()[name].splitlines():
        assert not line.startswith("'"), line
        assert not line.startswith(".") or _MACRO.match(line), line


@pytest.mark.skipif(shutil.which("groff") is None, reason="needs groff")
@pytest.mark.parametrize("name", list(pages()))
def test_groff_has_nothing_to_say(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(pages()[name])
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-z", path], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_escapes() -> None:
    assert escaped(".TH is no -title") == r"\&.TH is no \-title"
    assert escaped(r"a\b") == r"a\eb"


def test_completions_are_scripts(tmp_path: Path) -> None:
    completions(tmp_path)
    made = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert made == {
        "bash-completion/completions/koordlet",
        "bash-completion/completions/koord-scheduler",
        "zsh/vendor-completions/_koordlet",
        "zsh/vendor-completions/_koord-scheduler",
        "fish/vendor_completions.d/koordlet.fish",
    }
    for name in ("koordlet", "koord-scheduler"):
        script = tmp_path / "bash-completion" / "completions" / name
        done = subprocess.run(["bash", "-n", script], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")


def test_the_version_is_that_of_the_code() -> None:
    first = (ROOT / "debian" / "changelog").read_text().splitlines()[0]
    assert first.startswith(f"koordlet ({__version__}) ")


def copied_names() -> list[str]:
    """What the image is built from, relative to the checkout."""
    found = instructions((ROOT / "Containerfile").read_text())
    lines = [each.words[:-1] for each in found if each.name == "COPY"]
    return [name for words in lines if not words[0].startswith("--from=") for name in words]


def copied(target: Path) -> None:
    for name in copied_names():
        at = target / name
        at.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, at, symlinks=True, ignore=ignored)
        else:
            shutil.copy2(ROOT / name, at)


def test_the_image_is_made_of_what_is_there() -> None:
    found = [*instructions((ROOT / "Containerfile").read_text())]
    assert [each.name for each in found].count("FROM") == 2
    assert all((ROOT / source).exists() for source in copied_names())
    (entrypoint,) = (json.loads(each.text) for each in found if each.name == "ENTRYPOINT")
    (command,) = (json.loads(each.text) for each in found if each.name == "CMD")
    assert entrypoint == ["koordlet"]
    build_parser().parse_args(command)


def test_what_the_image_tool_does_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match="USER"):
        list(instructions("FROM debian:trixie-slim\nUSER nobody\n"))


def test_a_continued_line_is_one() -> None:
    (found,) = instructions("# said\n\nRUN one && \\\n    two\n")
    assert found.text.split() == ["one", "&&", "two"]
