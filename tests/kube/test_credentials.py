from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from koordlet.kube.credentials import BearerToken, Material, from_kubeconfig, in_cluster
from koordlet.kube.errors import CredentialsError


def _config(user: dict[str, Any], **cluster: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443", **cluster}}],
        "users": [{"name": "u", "user": user}],
    }


def _written(tmp_path: Path, tree: Any) -> str:
    path = tmp_path / "config"
    path.write_text(tree if isinstance(tree, str) else yaml.safe_dump(tree))
    return str(path)


def test_a_token_and_an_authority(tmp_path: Path) -> None:
    data = base64.b64encode(b"PEM").decode()
    tree = _config({"token": "secret"}, **{"certificate-authority-data": data})
    cluster = from_kubeconfig(_written(tmp_path, tree))
    assert cluster.server == "https://10.0.0.1:6443"
    assert cluster.ca is not None and cluster.ca.read() == b"PEM"
    assert cluster.token is not None and cluster.token.read() == b"secret"
    assert cluster.verify and cluster.namespace == "default"
    assert "secret" not in repr(cluster) and "PEM" not in repr(cluster)


def test_relative_paths_start_at_the_file(tmp_path: Path) -> None:
    user = {"client-certificate": "pki/c.pem", "client-key": "/abs/k.pem"}
    cluster = from_kubeconfig(_written(tmp_path, _config(user)))
    assert cluster.certificate == Material(f"{tmp_path}/pki/c.pem")
    assert cluster.key == Material("/abs/k.pem")


@pytest.mark.parametrize(
    ("user", "cluster", "said"),
    [
        ({"exec": {"command": "aws"}}, {}, "user 'u', exec: koordlet starts no other program"),
        ({"auth-provider": {"name": "gcp"}}, {}, "user 'u', auth-provider"),
        ({"username": "a", "password": "b"}, {}, "user 'u', username"),
        ({"as": "admin"}, {}, "user 'u', as"),
        ({"client-certificate": "a"}, {}, "belong together"),
        ({"token": "t"}, {"server": "http://10.0.0.1"}, "over plain http"),
        ({"token": "t"}, {"server": "http://127.evil.example"}, "over plain http"),
        ({}, {"server": "10.0.0.1:6443"}, "no URL"),
        ({}, {"proxy-url": "http://p"}, "proxy-url"),
        ({}, {"certificate-authority-data": "?"}, "certificate-authority-data: not base64"),
    ],
)
def test_what_cannot_be_used_is_refused_by_field(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], said: str
) -> None:
    path = _written(tmp_path, _config(user, **cluster))
    with pytest.raises(CredentialsError) as caught:
        from_kubeconfig(path)
    assert said in str(caught.value) and path in str(caught.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="line 2: not YAML"):
        from_kubeconfig(_written(tmp_path, "a: 1\n  b: {"))
    with pytest.raises(CredentialsError, match=r"clusters\[0\]"):
        from_kubeconfig(_written(tmp_path, {"clusters": [{"cluster": 7, "name": "x"}]}))
    with pytest.raises(CredentialsError, match="current-context is not set"):
        from_kubeconfig(_written(tmp_path, {}))
    with pytest.raises(CredentialsError, match="contexts has no entry 'there'"):
        from_kubeconfig(_written(tmp_path, _config({})), "there")
    with pytest.raises(CredentialsError, match="No such file"):
        from_kubeconfig(str(tmp_path / "none"))


def test_several_files_as_kubectl_reads_them(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    whole = _config({"token": "t"})
    first.write_text(yaml.safe_dump({"current-context": "here", "contexts": whole["contexts"]}))
    second.write_text(yaml.safe_dump({**whole, "current-context": "other", "contexts": []}))
    cluster = from_kubeconfig(f"{first}:{second}:{tmp_path}/absent")
    assert cluster.token is not None and cluster.token.read() == b"t"


def test_the_account_of_a_pod(tmp_path: Path) -> None:
    assert in_cluster({}) is None
    where = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(CredentialsError, match=r"ca\.crt: No such file"):
        in_cluster(where, str(tmp_path))
    for name, text in (("ca.crt", "PEM"), ("token", "t\n"), ("namespace", "koordinator-system")):
        (tmp_path / name).write_text(text)
    cluster = in_cluster(where, str(tmp_path))
    assert cluster is not None
    assert cluster.server == "https://[fd00::1]:443"
    assert cluster.namespace == "koordinator-system"


def test_a_token_is_read_again_and_survives_its_file(tmp_path: Path) -> None:
    now = 0.0
    path = tmp_path / "token"
    token = BearerToken(Material(str(path)), lambda: now)
    with pytest.raises(CredentialsError):
        token.text()
    path.write_text("one\n")
    now = 11.0
    assert token.text() == "one"
    path.write_text("two\n")
    assert token.text() == "one"
    token.renew()
    assert token.text() == "two"
    path.unlink()
    now = 60.0
    assert token.text() == "two"
