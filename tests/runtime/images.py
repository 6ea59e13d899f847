"""Two images without a registry: an OCI layout in a tar, made from one static busybox.

``ctr images import`` takes it (OCI image-layout 1.0; containerd reads the names of the images from
the annotation ``io.containerd.image.name``).
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

BUSYBOX = "localhost/busybox:1"
PAUSE = "localhost/pause:1"
FOR_EVER = ["/bin/sleep", "2147483647"]
_ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}
_FILES = {
    "etc/passwd": b"root:x:0:0:root:/:/bin/sh\n",
    "etc/group": b"root:x:0:\n",
}


def build(tar: Path, busybox: Path, more: Mapping[str, bytes] | None = None) -> None:
    """Writes ``tar`` with BUSYBOX and PAUSE in it. ``more``: name of an image -> its layer."""
    files = _Layout()
    shared = _layer(busybox)
    manifests = []
    for name, plain in {BUSYBOX: shared, PAUSE: shared, **(more or {})}.items():
        layer = files.blob(gzip.compress(plain, mtime=0), "layer.v1.tar+gzip")
        image = {
            "architecture": _ARCHITECTURE.get(platform.machine(), platform.machine()),
            "os": "linux",
            # A process 1 without a handler ignores SIGTERM: each stop would wait for its timeout.
            "config": {"Entrypoint": FOR_EVER, "Env": ["PATH=/bin"], "StopSignal": "SIGKILL"},
            "rootfs": {"type": "layers", "diff_ids": [_digest(plain)]},
            # Two images with one configuration would be one image with two names.
            "history": [{"comment": name}],
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": _media("manifest.v1+json"),
            "config": files.blob(_json(image), "config.v1+json"),
            "layers": [layer],
        }
        descriptor = files.blob(_json(manifest), "manifest.v1+json")
        manifests.append({**descriptor, "annotations": {"io.containerd.image.name": name}})
    files.add("index.json", _json({"schemaVersion": 2, "manifests": manifests}))
    files.add("oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
    tar.write_bytes(files.packed())


class _Layout:
    """The files of an image layout."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}

    def add(self, name: str, content: bytes) -> None:
        self._files[name] = content

    def blob(self, content: bytes, kind: str) -> dict[str, object]:
        """Adds it; returns its descriptor."""
        digest = _digest(content)
        self.add(f"blobs/{digest.replace(':', '/')}", content)
        return {"mediaType": _media(kind), "digest": digest, "size": len(content)}

    def packed(self) -> bytes:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            for name, content in self._files.items():
                _add_file(tar, name, content)
        return out.getvalue()


def _layer(busybox: Path) -> bytes:
    """A root file system: busybox, hard links to it for its applets, two users' files, /tmp."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in ("bin", "dev", "etc", "proc", "sys", "tmp"):
            directory = tarfile.TarInfo(name)
            directory.type, directory.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(directory)
        _add_file(tar, "bin/busybox", busybox.read_bytes(), 0o755)
        applets = subprocess.run([busybox, "--list"], check=True, capture_output=True, text=True)
        for applet in applets.stdout.split():
            if applet != "busybox":
                link = tarfile.TarInfo(f"bin/{applet}")
                link.type, link.linkname, link.mode = tarfile.LNKTYPE, "bin/busybox", 0o755
                tar.addfile(link)
        for name, content in _FILES.items():
            _add_file(tar, name, content)
    return out.getvalue()


def _add_file(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    file = tarfile.TarInfo(name)
    file.size, file.mode = len(content), mode
    tar.addfile(file, io.BytesIO(content))


def _digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _media(kind: str) -> str:
    return f"application/vnd.oci.image.{kind}"
