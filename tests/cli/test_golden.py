"""What each command prints, in each form, for the daemon in tests/admin/fake_daemon.py."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

from koordlet.cli.main import main
from tests.admin.harness import Served

GOLDEN = Path(__file__).parent / "golden"
COMMANDS = {
    "status": ["status"],
    "status-verbose": ["status", "--verbose"],
    "why": ["why"],
    "pods": ["pods"],
    "top": ["top", "--once", "--processes", "0"],
    "blame": ["blame"],
    "blame-pod": ["blame", "shop/web-0"],
    "explain": ["explain", "kubepods/besteffort"],
    "events": ["events"],
    "hooks": ["hooks"],
    "hooks-pod": ["hooks", "shop/web-0"],
    "nri-status": ["nri", "status"],
    "strategies": ["strategies"],
    "strategies-one": ["strategies", "cpu-suppress"],
    "devices": ["devices"],
    "query": ["query", "pod_cpu_usage", "pod_uid=b", "--window", "30s", "--aggregate", "p95"],
    "predict": ["predict"],
    "predict-pod": ["predict", "shop/web-0", "--window", "1h"],
    "restore": ["restore", "--dry-run"],
    "pause": ["pause", "--reason", "disk swap", "--for", "2h"],
    "pause-list": ["pause", "--list"],
    "resume": ["resume", "cpu-qos"],
    "config-show": ["config", "show"],
    "config-reload": ["config", "reload"],
}


@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize("form", ["table", "json", "yaml"])
@pytest.mark.parametrize("name", COMMANDS)
def test_output(name: str, form: str, served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    """KOORDLET_UPDATE_GOLDEN=1 rewrites the files; look at the difference before committing."""
    assert main([*COMMANDS[name], "-o", form, "--socket", served.path]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    golden = GOLDEN / f"{name}.{form}"
    if os.environ.get("KOORDLET_UPDATE_GOLDEN"):
        golden.write_text(printed.out)
    assert printed.out == golden.read_text()


@pytest.mark.parametrize("name", COMMANDS)
def test_json_and_yaml_say_the_same(name: str) -> None:
    as_json, as_yaml = ((GOLDEN / f"{name}.{form}").read_text() for form in ("json", "yaml"))
    documents = list(yaml.safe_load_all(as_yaml))
    if name == "events":
        assert [json.loads(line) for line in as_json.splitlines()] == documents
    else:
        assert [json.loads(as_json)] == documents
