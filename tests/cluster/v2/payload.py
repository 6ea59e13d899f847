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
from tests.vm.disks import copy_tree, make_ext4

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
        images.build(
            node / "images.tar", payload.runtime / "busybox", {KOORDLET: _userland_of_the_node()}
        )
        make_ext4(root, disk)


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
