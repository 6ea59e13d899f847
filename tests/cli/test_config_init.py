"""``koordlet config init`` as a user meets it."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from koordlet.cli import config_init
from koordlet.cli.main import Exit, main
from koordlet.config.init import Machine, Unit
from koordlet.config.load import load

MACHINE = Machine(
    (Unit("nginx.service", "LS"), Unit("backup.slice", "BE"), Unit("shop.service", "")), "database"
)


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_init, "look", lambda *_: MACHINE)


def _answers(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def _classes(file: Path) -> dict[str, str]:
    return {each.systemd_unit: each.qos for each in load(str(file)).config.applications}


def test_yes_takes_what_the_names_tell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "new" / "koordlet.toml"
    assert main(["config", "init", "--yes", str(file)]) == Exit.OK
    assert _classes(file) == {"nginx.service": "LS", "backup.slice": "BE"}
    assert "# Not taken: shop.service" in file.read_text()
    said = capsys.readouterr()
    assert said.out == ""
    assert f"{file}: 2 applications, database.\n" in said.err
    assert list(file.parent.iterdir()) == [file]


def test_it_asks_for_each_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "koordlet.toml"
    _answers(monkeypatch, "\nwhat\nSkip\nls\n")
    assert main(["config", "init", "--preset", "gpu", str(file)]) == Exit.OK
    assert _classes(file) == {"nginx.service": "LS", "shop.service": "LS"}
    said = capsys.readouterr().err
    assert said.count("backup.slice: LS (latency-sensitive), BE (best-effort) or skip? [BE]") == 2
    assert "shop.service: LS (latency-sensitive), BE (best-effort) or skip? [skip]" in said
    assert file.read_text().startswith("# gpu: ")


def test_without_an_answer_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _answers(monkeypatch, "\n")
    assert main(["config", "init", str(tmp_path / "koordlet.toml")]) == Exit.USAGE
    assert "--yes" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "koordlet.toml"
    file.write_text("# mine\n")
    assert main(["config", "init", "--yes", str(file)]) == Exit.BAD
    assert "--force" in capsys.readouterr().err
    assert file.read_text() == "# mine\n"
    assert main(["config", "init", "--yes", "--force", str(file)]) == Exit.OK
    assert _classes(file)


def test_it_prints_the_configuration_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _answers(monkeypatch, "\n\n\n")
    assert main(["config", "init", "-"]) == Exit.OK
    file = tmp_path / "koordlet.toml"
    file.write_text(capsys.readouterr().out)
    assert len(_classes(file)) == 2


def test_it_works_where_cgroups_cannot_be_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> Machine:
        raise FileNotFoundError("no cgroups are mounted")

    monkeypatch.setattr(config_init, "look", fail)
    assert main(["config", "init", "--yes", "-"]) == Exit.OK
    said = capsys.readouterr()
    assert said.out.startswith("# web+batch: ")
    assert "no cgroups are mounted" in said.err
