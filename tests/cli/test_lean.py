"""The daemon's process does not load what it does not use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from koordlet.cli.process.lean import UNUSED, _in_cluster, unavailable

_PROBE = """
import sys
from koordlet.cli.process import lean
with lean.unavailable(*lean.UNUSED):
    from koordlet.cli.process import run
print(*(name for name in sys.argv[1:] if name in sys.modules))
import ssl
import rich
"""


def test_the_daemon_loads_no_terminal_and_no_grpc_and_later_imports_work() -> None:
    names = [*UNUSED, "_ssl", "grpc", "google.protobuf", "yaml", "pygments"]
    done = subprocess.run(
        [sys.executable, "-c", _PROBE, *names], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def test_a_hidden_module_raises_inside_and_a_loaded_one_stays() -> None:
    import json

    with unavailable("json", "fractions_of_nothing"):
        import json as again

        with pytest.raises(ImportError):
            __import__("fractions_of_nothing")
    assert again is json
    assert "fractions_of_nothing" not in sys.modules


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[cluster]\napi = "in-cluster"\n', True),
        ('cluster = { api = "/etc/kubeconfig" }\n', True),
        ('[cluster]\napi = "off"\n', False),
        ("[cluster]\nkubelet = false\n", False),
        ("cluster = 1\n", False),
        ("[cluster\n", False),
    ],
)
def test_a_node_of_a_cluster_has_tls(tmp_path: Path, text: str, expected: bool) -> None:
    file = tmp_path / "koordlet.toml"
    file.write_text(text)
    assert _in_cluster(str(file)) is expected
    assert not _in_cluster(f"{file}.missing")
