"""The services of the effect benches answer their clients."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from bench.effects import services
from bench.effects.client import Load, capacity
from bench.effects.stage import Stage, measure, stage
from bench.figures import NotMeasuredError
from koordlet.demo.load import DRAIN_S

FETCH = Path(__file__).parents[2] / "tools" / "fetch-services"
PROGRAMS = (
    *("nginx", "redis-server", "redis-cli", "memcached", "ffmpeg", "cc1"),
    *("postgres", "initdb", "pgbench"),
)
pytestmark = pytest.mark.timeout(300)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes cgroups, which needs root")


@pytest.fixture
def on() -> Iterator[Stage]:
    try:
        services.programs()
    except NotMeasuredError as error:
        pytest.skip(str(error))
    with stage("ls") as made:
        yield made


def ask(on: Stage, load: Load) -> None:
    """Each request is answered, by a service in its group."""
    seen = measure(on, {"ls": load})
    assert seen.latencies["ls"].ms
    assert max(seen.latencies["ls"].ms) < DRAIN_S * 1000
    assert seen.used.cores["ls"] > 0


@pytest.mark.parametrize("missing", ["", "memcached", "pgbench"])
def test_a_cache_from_before_a_program_came_is_fetched_again(missing: str, tmp_path: Path) -> None:
    """As far as to apt-get, which is not there."""
    shell = tmp_path / "shell"
    shell.mkdir()
    for name in ("sh", "dirname"):
        (shell / name).symlink_to(shutil.which(name) or name)
    cache = tmp_path / "services"
    (cache / "bin").mkdir(parents=True)
    for name in ("bin/" + each for each in PROGRAMS if each != missing):
        (cache / name).touch()
    (cache / "version").touch()
    done = subprocess.run(
        [FETCH, cache], env={"PATH": str(shell)}, capture_output=True, text=True, check=False
    )
    assert done.stderr == ("fetch-services: needs apt-get\n" if missing else "")
    assert done.returncode == (1 if missing else 0)


@pytest.mark.kernel
@needs_root
def test_memcached_has_each_key(on: Stage) -> None:
    server = services.memcached(on, "ls", threads=2, keys=500, value_bytes=100)
    ask(on, server.load(200, 1.0))
    assert capacity(server.load(1, 0.5), clients=2) > 10


@pytest.mark.kernel
@needs_root
def test_postgres_looks_up_accounts_on_connections_that_are_kept(on: Stage) -> None:
    server = services.postgres(on, "ls", scale=1)
    ask(on, server.load(200, 1.0))
    assert capacity(server.load(1, 0.5), clients=2) > 10


@pytest.mark.kernel
@needs_root
def test_requests_wait_for_a_connection_and_none_is_lost(on: Stage) -> None:
    server = services.postgres(on, "ls", scale=1)
    at_once = server.load(1000, 0.5, connections=1)
    ask(on, msgspec.structs.replace(at_once, burst=50))


@pytest.mark.kernel
@needs_root
def test_a_model_says_the_same_after_the_same_prompt(on: Stage) -> None:
    if not (services.model_place() / "version").exists():
        pytest.skip("needs tools/fetch-model, which makes half a gigabyte")
    server = services.model_server(on, "ls", threads=1)
    ask(on, server.load(3, 1.0))
    first, second = (tokens(server) for _ in range(2))
    assert first == second
    assert len(set(first)) > 1


def tokens(server: services.ModelServer) -> list[int]:
    """After a few prompts."""
    return [first_token(server, number) for number in range(4)]


def first_token(server: services.ModelServer, number: int) -> int:
    with server.load(1, 1).connect() as connection:
        connection.sendall(server.request % number)
        reply = b"".join(iter(lambda: connection.recv(4096), b""))
    head, _, body = reply.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 200 ")
    return int(body)
