"""What the command line says of YARN."""

from __future__ import annotations

import pytest

from koord_scheduler.cli import run
from koord_scheduler.cli.main import Exit, build_parser, main
from koord_scheduler.daemon.yarn import Setup
from koord_scheduler.sinks.yarn_client import Access


def _setup(*argv: str) -> Setup:
    found = run._options(build_parser().parse_args(["run", *argv])).extra["yarn"]
    assert isinstance(found, Setup)
    return found


def test_defaults() -> None:
    assert _setup() == Setup({})


def test_everything() -> None:
    assert _setup(
        *("--yarn-resource-manager", "http://a:8088,http://b:8088"),
        *("--yarn-resource-manager", "blue=https://c"),
        *("--yarn-user", "koord", "--yarn-token-file", "/t", "--yarn-ca-file", "/ca"),
        *("--yarn-namespace", "hadoop", "--yarn-over-commit-timeout", "30"),
    ) == Setup(
        {"": ("http://a:8088", "http://b:8088"), "blue": ("https://c",)},
        Access("koord", "/t", "/ca"),
        "hadoop",
        30_000,
    )


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["--yarn-resource-manager", "rm"], "--yarn-resource-manager 'rm': 'rm' is no address"),
        (["--yarn-over-commit-timeout", "-2"], "--yarn-over-commit-timeout must be -1 to 86400"),
        (["--yarn-over-commit-timeout", "86401"], "--yarn-over-commit-timeout must be -1 to 86400"),
    ],
)
def test_what_is_wrong_is_said(
    argv: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *argv]) == Exit.USAGE
    assert text in capsys.readouterr().err
