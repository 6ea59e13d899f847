"""The second disk of the emulated node: kubelet, the runtime, images, koordlet."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.realkube import network
from tests.realkube.binaries import program
from tests.runtime import images
from tests.vm.disks import REPOSITORY, copy_tree, make_ext4

_GUEST = Path(__file__).with_name("guest")
_RUNTIME = ("containerd", "containerd-shim-runc-v2", "ctr", "runc", "busybox")
KOORDLET = "docker.io/library/koordlet:0.1.0"
NODE_PATHS = ("/usr", "/opt/koordlet", "/srv/koordlet")
"""What the image of koordlet takes from the node, where the real one has copies: to unpack that one
takes an emulated CPU minutes."""


@dataclass(frozen=True)
class Payload:
    """``runtime``: a folder with containerd and what belongs to it. ``kubeconfig``: kubelet's, as
    it is in the guest."""

    image: Path
    runtime: Path
    kubeconfig: Mapping[str, object]
    token: str
    by_proxy: bool = False


def write(payload: Payload, disk: Path) -> None:
    with tempfile.TemporaryDirectory(dir=disk.parent) as work:
        root = Path(work)
        copy_tree(payload.image, root / "tree", ("koordlet", "systemd", "pyproject.toml"))
        node = root / "node"
        shutil.copytree(_GUEST, node)
        (node / "main").rename(root / "main")
        (node / "bin").mkdir()
        for name in _RUNTIME:
            shutil.copy2(payload.runtime / name, node / "bin" / name)
        shutil.copy2(program("kubelet"), node / "bin" / "kubelet")
        network.install(node / "cni")
        (node / "kubeconfig").write_text(json.dumps(payload.kubeconfig))
        (node / "token").write_text(payload.token)
        if payload.by_proxy:
            _put_proxy_between(node)
        images.build(
            node / "images.tar", payload.runtime / "busybox", {KOORDLET: _userland_of_the_node()}
        )
        make_ext4(root, disk)


def _put_proxy_between(node: Path) -> None:
    """kubelet asks the proxy, as docs/proxy.md says, and containerd has no NRI."""
    for name in ("koord-runtime-proxy.service", "koord-runtime-proxy.socket"):
        shutil.copy2(REPOSITORY / "systemd" / name, node / "units" / name)
    _replace(node / "containerd.toml", "\ndisable = false", "\ndisable = true")
    _replace(
        node / "kubelet.yaml",
        "unix:///run/containerd/containerd.sock",
        "unix:///run/koord-runtimeproxy/runtimeproxy.sock",
    )
    _replace(
        node / "units" / "kubelet.service",
        "Wants=containerd.service",
        "Wants=containerd.service koord-runtime-proxy.socket",
    )
    # An emulated CPU is slow.
    (node / "proxy-options").write_text("OPTIONS=--hook-timeout=30\n")
    late = node / "units" / "koord-runtime-proxy.service.d"
    late.mkdir()
    (late / "emulated.conf").write_text(
        "[Service]\nTimeoutStartSec=300\nEnvironmentFile=/srv/koordlet/node/proxy-options\n"
    )


def _replace(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1, (file, old)
    file.write_text(text.replace(old, new))


def _userland_of_the_node() -> bytes:
    """A layer of mount points and of the links that a merged /usr has."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        paths = ("usr", "opt", "opt/koordlet", "srv", "srv/koordlet", "etc", "tmp", "var", "run")
        for path in (*paths, "dev", "proc", "sys"):
            directory = tarfile.TarInfo(path)
            directory.type, directory.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(directory)
        for name, target in (
            *((name, f"usr/{name}") for name in ("bin", "sbin", "lib", "lib64")),
            ("var/run", "/run"),
        ):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            tar.addfile(link)
        for name, text in (("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n"),):
            file = tarfile.TarInfo(name)
            file.size = len(text)
            tar.addfile(file, io.BytesIO(text))
    return out.getvalue()
