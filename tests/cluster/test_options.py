"""The table ``[cluster]`` of the configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from koordlet.cluster.member import cluster_of
from koordlet.cluster.options import Options
from koordlet.config.errors import ConfigErrors
from koordlet.config.load import Loaded, load
from koordlet.daemon.membership import options_of
from koordlet.kube.errors import CredentialsError


def loaded(tmp_path: Path, text: str) -> Loaded:
    file = tmp_path / "koordlet.toml"
    file.write_text(text)
    return load(str(file))


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('api = "kubeconfig"', "cluster.api"),
        ('api = "~/.kube/config"', "cluster.api"),
        ('kubelet_ca = "ca.crt"', "cluster.kubelet_ca"),
        ('kubelet_dir = "kubelet"', "cluster.kubelet_dir"),
        ('pods = "kubelet"\nkubelet = false', "cluster.kubelet"),
        ('pods = "somebody"', "cluster.pods"),
        ("requests_per_second = 0", "cluster.requests_per_second"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, key: str) -> None:
    with pytest.raises(ConfigErrors) as found:
        loaded(tmp_path, f"[cluster]\n{text}\n")
    assert [error.path for error in found.value.errors] == [key]


def test_no_cluster_is_the_default(tmp_path: Path) -> None:
    assert options_of(loaded(tmp_path, "").config) is None


def test_the_node_is_called_as_kubelet_calls_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODE_NAME", "node-7")
    text = '[cluster]\napi = "in-cluster"\n[paths]\nstate_dir = "/s"\n'
    found = options_of(loaded(tmp_path, text).config)
    assert found is not None
    assert (found.node, found.state_dir) == ("node-7", "/s/cluster")
    found = options_of(loaded(tmp_path, f'{text}[node]\nname = "Node-1"\n').config)
    assert found is not None
    assert found.node == "node-1"


def test_who_runs_in_no_pod_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(CredentialsError, match="kubeconfig"):
        cluster_of(Options("in-cluster", "node-1"))
