"""``tools/image.py [FILE]``: the image that ``Containerfile`` describes, as an OCI archive in FILE
(default: dist/koordlet-VERSION.oci.tar), without any container tool or registry of images.

Needs root, debootstrap and a mirror of Debian in the machine's own apt sources. It knows those
instructions that our file uses: FROM debian:SUITE-slim, which debootstrap makes, RUN, COPY, ENV,
LABEL, ENTRYPOINT and CMD; any other is refused. The image is one layer. Nothing of this machine
gets into it: apt's mirror, pip's configuration and certificates are mounted while a RUN lasts.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from koordlet import __version__

ROOT = Path(__file__).parent.parent
NAME = f"docker.io/library/koordlet:{__version__}"
"""What ``koordlet:VERSION`` means to a container runtime."""
_ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
_LENT = "run/build"
"""Where copies of files of this machine are while a RUN lasts."""
_EPOCH = 1767225600
"""2026-01-01, the time of every file: the same content is the same layer."""
_SLIM = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info")
_DROPPED = ("var/lib/apt/lists", "var/cache/apt", "var/log", "tmp", "run")
"""What no image needs; the directories stay."""


class Instruction(NamedTuple):
    """``words``: of the line after the name, as a shell reads them; ``text``: as it stands."""

    name: str
    words: tuple[str, ...]
    text: str


@dataclass
class Stage:
    root: Path
    environ: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)


def instructions(text: str) -> Iterator[Instruction]:
    """Of a Containerfile. Raises ValueError where it has what we do not know."""
    known = ("FROM", "RUN", "COPY", "ENV", "LABEL", "ENTRYPOINT", "CMD")
    for line in text.replace("\\\n", " ").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        name, _, rest = line.strip().partition(" ")
        if name not in known:
            raise ValueError(f"{name}: tools/image.py knows only {', '.join(known)}")
        words = () if name in ("RUN", "ENTRYPOINT", "CMD") else tuple(shlex.split(rest))
        yield Instruction(name, words, rest)


def build(text: str, work: Path) -> Stage:
    """The last stage, built below ``work``."""
    stages: dict[str, Stage] = {}
    stage: Stage | None = None
    for name, words, line in instructions(text):
        print(f"image: {name} {line[:100]}", file=sys.stderr)
        if name == "FROM":
            stage = Stage(work / f"stage{len(stages)}")
            stages[words[2] if len(words) == 3 else str(len(stages))] = stage
            _base(words[0], work, stage.root)
            continue
        assert stage is not None, "FROM comes first"
        if name == "RUN":
            _run(stage, line, work)
        elif name == "COPY":
            _copy(stage, words, stages)
        elif name in ("ENV", "LABEL"):
            kept = stage.environ if name == "ENV" else stage.labels
            kept.update((word.partition("=")[0], word.partition("=")[2]) for word in words)
        elif name == "ENTRYPOINT":
            stage.entrypoint = json.loads(line)
        else:
            stage.command = json.loads(line)
    assert stage is not None, "no FROM"
    return stage


def _base(image: str, work: Path, root: Path) -> None:
    suite = image.removeprefix("debian:").removesuffix("-slim")
    if image != f"debian:{suite}-slim":
        raise ValueError(f"FROM {image}: only debian:SUITE-slim can be made without a registry")
    made = work / f"base-{suite}"
    if not made.exists():
        packages = work / "packages"
        packages.mkdir(exist_ok=True)
        _call(
            *("debootstrap", "--variant=minbase", f"--keyring={_KEYRING}"),
            *(f"--cache-dir={packages}", suite, str(made), _mirror()),
        )
        sources = f"deb http://deb.debian.org/debian {suite} main\n"
        (made / "etc" / "apt" / "sources.list").write_text(sources)
        for each in ("var/cache/apt/archives", "var/lib/apt/lists", *_SLIM):
            _empty(made / each)
    _call("cp", "-a", "--reflink=auto", str(made), str(root))


def _mirror() -> str:
    return _output(str(ROOT / "tools" / "debian-mirror"))


def _run(stage: Stage, command: str, work: Path) -> None:
    """In a chroot with mounts of its own, which end with it. All that is lent is a copy, mounted
    read-only: scripts of packages write to /etc as they like."""
    root, lent = stage.root, work / "lent"
    mounts = _lent(root, lent)
    # What is made only to be mounted on goes again.
    made = [root / inside for inside in mounts if not (root / inside).exists()]
    lines = [
        f"mount -t proc proc {root}/proc",
        f"mount -t tmpfs -o mode=755 tmpfs {root}/dev",
        *(
            f"mknod -m 666 {root}/dev/{name} c 1 {minor}"
            for name, minor in (("null", 3), ("zero", 5), ("random", 8), ("urandom", 9))
        ),
    ]
    for inside, path in mounts.items():
        at = root / inside
        at.parent.mkdir(parents=True, exist_ok=True)
        at.mkdir(exist_ok=True) if path.is_dir() else at.touch()
        lines += [f"mount --bind {path} {at}", f"mount -o remount,bind,ro {at}"]
    lines.append(f"exec chroot {root} /bin/sh -ec {shlex.quote(command)}")
    pip = {key: value for key, value in os.environ.items() if key.startswith("PIP_")}
    environ = {
        **pip,
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "DEBIAN_FRONTEND": "noninteractive",
        "HOME": "/root",
        "PIP_CONFIG_FILE": f"/{_LENT}/pip.conf",
        "PIP_CERT": f"/{_LENT}/certificates",
        **stage.environ,
    }
    try:
        _call(
            *("unshare", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child"),
            *("sh", "-ec", "\n".join(lines)),
            environ=environ,
        )
    finally:
        for each in made:
            each.rmdir() if each.is_dir() else each.unlink(missing_ok=True)


def _lent(root: Path, lent: Path) -> dict[str, Path]:
    """Copies of what a RUN needs of this machine: path below ``root`` -> copy below ``lent``."""
    (lent / "build").mkdir(parents=True, exist_ok=True)
    suite = (root / "etc" / "apt" / "sources.list").read_text().split()[2]
    keyring = lent / "build" / "keyring.gpg"
    for path, copy in (
        (_KEYRING, keyring),
        (_CERTIFICATES, lent / "build" / "certificates"),
        ("/etc/pip.conf", lent / "build" / "pip.conf"),
        ("/etc/resolv.conf", lent / "resolv.conf"),
        ("/etc/hosts", lent / "hosts"),
    ):
        if os.path.exists(path):
            shutil.copyfile(path, copy)
        else:
            copy.touch()
    (lent / "sources.list").write_text(
        f"deb [signed-by=/{_LENT}/keyring.gpg] {_mirror()} {suite} main\n"
    )
    (lent / "apt.conf").write_text(
        'APT::Sandbox::User "root";\nDpkg::Use-Pty "0";\n'
        f'Acquire::https::CAInfo "/{_LENT}/certificates";\n'
    )
    return {
        _LENT: lent / "build",
        "etc/apt/sources.list": lent / "sources.list",
        "etc/apt/apt.conf.d/99build": lent / "apt.conf",
        "etc/resolv.conf": lent / "resolv.conf",
        "etc/hosts": lent / "hosts",
    }


def _copy(stage: Stage, words: tuple[str, ...], stages: Mapping[str, Stage]) -> None:
    source_root = ROOT
    if words[0].startswith("--from="):
        source_root = stages[words[0].removeprefix("--from=")].root
        words = words[1:]
    *sources, target = words
    at = stage.root / target.lstrip("/")
    if target.endswith("/"):
        at.mkdir(parents=True, exist_ok=True)
    else:
        at.parent.mkdir(parents=True, exist_ok=True)
    for source in sources:
        path = source_root / source.lstrip("/")
        if not path.is_dir():
            shutil.copy2(path, at)
        elif source_root == ROOT:
            ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
            shutil.copytree(path, at, symlinks=True, ignore=ignored, dirs_exist_ok=True)
        else:
            at.mkdir(exist_ok=True)
            _call("cp", "-a", f"{path}/.", str(at))


def archive(stage: Stage, out: Path) -> None:
    """The stage as an OCI image layout in a tar."""
    for each in _DROPPED:
        _empty(stage.root / each)
    with tempfile.TemporaryDirectory(dir=out.parent) as directory:
        layer = Path(directory) / "layer.tar"
        _call(
            *("tar", "--create", f"--file={layer}", f"--directory={stage.root}", "--sort=name"),
            *(f"--mtime=@{_EPOCH}", "--numeric-owner", "--format=gnu", "."),
        )
        plain = _digest(layer)
        packed = Path(directory) / "layer.tar.gz"
        with (
            layer.open("rb") as read,
            packed.open("wb") as raw,
            gzip.GzipFile("", "wb", 6, raw, mtime=0) as write,
        ):
            shutil.copyfileobj(read, write, 1 << 20)
        layer.unlink()
        config = {
            "architecture": _ARCHITECTURE,
            "os": "linux",
            "config": {
                "Env": [f"{key}={value}" for key, value in stage.environ.items()],
                "Entrypoint": stage.entrypoint,
                "Cmd": stage.command,
                "Labels": {**stage.labels, "org.opencontainers.image.version": __version__},
            },
            "rootfs": {"type": "layers", "diff_ids": [plain]},
        }
        files: dict[str, bytes] = {"oci-layout": _json({"imageLayoutVersion": "1.0.0"})}
        described = _blob(files, _json(config), "config.v1+json")
        manifest = {
            "schemaVersion": 2,
            "mediaType": _media("manifest.v1+json"),
            "config": described,
            "layers": [
                {
                    "mediaType": _media("layer.v1.tar+gzip"),
                    "digest": _digest(packed),
                    "size": packed.stat().st_size,
                }
            ],
        }
        entry = {
            **_blob(files, _json(manifest), "manifest.v1+json"),
            "annotations": {
                "io.containerd.image.name": NAME,
                "org.opencontainers.image.ref.name": __version__,
            },
        }
        files["index.json"] = _json({"schemaVersion": 2, "manifests": [entry]})
        part = out.with_name(f".{out.name}")
        with tarfile.open(part, "w") as tar:
            tar.add(packed, f"blobs/{_digest(packed).replace(':', '/')}", filter=_plain)
            for name, content in files.items():
                path = Path(directory) / "file"
                path.write_bytes(content)
                tar.add(path, name, filter=_plain)
        part.rename(out)


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mtime = _EPOCH
    info.mode = 0o644
    return info


def _blob(files: dict[str, bytes], content: bytes, kind: str) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    files[f"blobs/sha256/{digest}"] = content
    return {"mediaType": _media(kind), "digest": f"sha256:{digest}", "size": len(content)}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _media(kind: str) -> str:
    return f"application/vnd.oci.image.{kind}"


def _empty(directory: Path) -> None:
    for each in directory.iterdir() if directory.is_dir() else ():
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        else:
            each.unlink()


def _call(*command: str, environ: Mapping[str, str] | None = None) -> None:
    """Raises SystemExit with the end of what it said."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environ
    )
    if done.returncode != 0:
        print(done.stdout[-4000:], file=sys.stderr)
        raise SystemExit(f"image: {command[0]} failed with {done.returncode}")


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main() -> int:
    if os.geteuid() != 0:
        raise SystemExit("image: needs root, for debootstrap and chroot")
    if shutil.which("debootstrap") is None:
        raise SystemExit("image: needs debootstrap (apt-get install debootstrap)")
    out = Path(sys.argv[1] if len(sys.argv) > 1 else f"dist/koordlet-{__version__}.oci.tar")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="koordlet-image-") as work:
        stage = build((ROOT / "Containerfile").read_text(), Path(work))
        archive(stage, out)
    print(out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
