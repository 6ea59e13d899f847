"""The services of the benches (``tools/fetch-services``) for a guest, which has none of their
libraries; BCC for one that has none."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

_FETCH = Path(__file__).parents[2] / "tools" / "fetch-services"
_FETCH_BCC = _FETCH.parent / "vm" / "fetch-bcc"
# Of glibc, which belong to the loader: a guest has its own, and it must not be older.
_GLIBC = re.compile(r"(ld-linux-x86-64|lib(c|m|dl|rt|pthread|resolv|util|mvec|anl))\.so\.\d+")
_RESOLVED = re.compile(r"=> (/.*) \(0x")


class NoServicesError(Exception):
    """They cannot be had on this machine; the text says why."""


def copy_services(to: Path) -> None:
    """Of the machine's own cache, filled if need be, with all libraries that they load here.
    Programs are copied, also where the cache has only links to this machine's."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    services = cache / "koordlet" / "services"
    fetched = subprocess.run(
        [_FETCH, services],
        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    if fetched.returncode:
        raise NoServicesError(fetched.stderr.strip() or "tools/fetch-services failed")
    shutil.copytree(services, to)
    for program in sorted((to / "bin").iterdir()):
        for library in _libraries(program, to / "lib"):
            target = to / "lib" / library.name
            if not target.exists() and not _GLIBC.fullmatch(library.name):
                shutil.copy(library, target)


def copy_bcc(kernel: str, to: Path) -> None:
    """BCC and the headers of a guest's kernel (``tools/vm/fetch-bcc``)."""
    fetched = subprocess.run(
        [_FETCH_BCC, kernel], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if fetched.returncode:
        raise NoServicesError(fetched.stderr.strip() or "tools/vm/fetch-bcc failed")
    shutil.copytree(fetched.stdout.strip(), to, symlinks=True)


def _libraries(program: Path, beside: Path) -> list[Path]:
    told = subprocess.run(
        ["ldd", str(program)],
        env={**os.environ, "LD_LIBRARY_PATH": str(beside)},
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    return [Path(found) for found in _RESOLVED.findall(told)]
