"""Real callers of grpc-go (``grpcgo/main.go``), built once into the cache."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

_SOURCE = Path(__file__).parent / "grpcgo"
_CACHE = Path.home() / ".cache" / "koordlet"
_BUILD_S = 400


def built() -> Path:
    """The program. Skips the test where it cannot be had."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("no Go toolchain: the client of our own stands in for grpc-go")
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum", "main.go"):
        digest.update((_SOURCE / name).read_bytes())
    program = _CACHE / f"grpcgo-{digest.hexdigest()[:16]}"
    if not program.exists():
        _CACHE.mkdir(parents=True, exist_ok=True)
        unfinished = program.with_name(f"{program.name}.{os.getpid()}")
        # What is fetched is pinned by go.sum.
        environment = {**os.environ, "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"}
        command = ["nice", "-n", "19", go, "build", "-trimpath", "-o", str(unfinished), "."]
        try:
            done = subprocess.run(
                command,
                cwd=_SOURCE,
                env=environment,
                capture_output=True,
                text=True,
                timeout=_BUILD_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            pytest.skip(f"grpc-go was not built within {_BUILD_S} s")
        if done.returncode != 0:
            pytest.skip(f"grpc-go cannot be built: {done.stderr.strip().splitlines()[-1]}")
        unfinished.rename(program)
    return program


class GoCallers:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, program: Path, socket: str, callers: int) -> GoCallers:
        pipe = asyncio.subprocess.PIPE
        return cls(
            await asyncio.create_subprocess_exec(
                str(program), socket, str(callers), stdin=pipe, stdout=pipe
            )
        )

    async def stop(self) -> Counter[str]:
        """How the calls ended, by name of the status."""
        out, _ = await asyncio.wait_for(self._process.communicate(b""), 60)
        return Counter(json.loads(out))

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
