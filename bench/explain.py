"""What callers of the local API cost the event loop: ten ask `explain`, one after the other.

A node of 300 pods on the fake kernel, a decision log of 43,400 records, the real API on a socket,
and ten clients in a process of their own. The loop meanwhile wakes each millisecond and reads a
file 200 times, as a tick does: how late it wakes, and how long the reads take, is what an alarm
would have to wait. ``before`` is the same daemon with the search that koordlet had, on the loop.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import tempfile
import time
from asyncio.subprocess import Process
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec

from bench.figures import Figure, quantile
from bench.hooks_node import Node
from koordlet.admin.daemon import Lookup
from koordlet.admin.model.events import ExplainView
from koordlet.admin.server import AdminServer
from koordlet.decision.record import Kind, Record
from koordlet.decision.why import Input, Why
from koordlet.demo.process import die_with_parent
from koordlet.engine.engine import Engine
from koordlet.kernel.background import no_pause
from koordlet.report.decision_search import matches
from koordlet.views.views import Views

_CLIENTS = 10
_RECORDS = 43_400
_READS = 200
_WAKE_S = 0.001
_BETWEEN_S = 0.02
_ANSWER_TIMEOUT_S = 120.0
_TARGETS = ("no-such-rule", "cpu-qos", "cpu-suppress", "node")
# Ten threads with a client each, which asks again as soon as it is answered.
_ASK = """\
import sys, threading, time
from koordlet.admin.client import Client, NotReachableError, RefusedError
path, clients, seconds, targets = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4:]
answers = [0] * clients
def ask(number):
    with Client(path) as client:
        while True:
            try:
                client.explain(targets[(number + answers[number]) % len(targets)], 100)
            except RefusedError:
                pass  # nothing is on record about it
            except NotReachableError:
                return  # the server ends before its clients
            answers[number] += 1
for number in range(clients):
    threading.Thread(target=ask, args=(number,), daemon=True).start()
while not all(answers):
    time.sleep(0.01)
print("ready", flush=True)
before = sum(answers)
time.sleep(seconds)
print(sum(answers) - before, flush=True)
"""


def run(smoke: bool, say: Callable[[str], None]) -> list[Figure]:
    """Raises TimeoutError where the clients are not answered."""
    records, seconds = (2_000, 1.0) if smoke else (_RECORDS, 15.0)
    with tempfile.TemporaryDirectory(prefix="koordlet-bench-explain-") as directory:
        node = Node(Path(directory), 30 if smoke else 300)
        try:
            say(f"a log of {records} records")
            _fill(node, records)
            found = {}
            for name in ("nobody", "before", "after"):
                say(f"{name}: {seconds:.0f} s")
                views = Views(node.engine, lambda: None)
                if name == "before":
                    views.explain = partial(_before, node.engine)
                clients = 0 if name == "nobody" else _CLIENTS
                path = str(Path(directory) / "api.sock")
                found[name] = asyncio.run(_watch(views, path, clients, seconds))
        finally:
            node.stop()
    return list(_figures(found, records))


class _Seen(msgspec.Struct):
    """Milliseconds; ``answers`` per second."""

    late: list[float]
    reads: list[float]
    answers: float = 0.0


def _figures(found: dict[str, _Seen], records: int) -> Iterator[Figure]:
    who = {
        "before": f"ten clients, {records} records, as before",
        "after": "ten clients, in the thread",
        "nobody": "nobody asks",
    }
    for name, seen in found.items():
        goal = 10.0 if name == "after" else None
        yield Figure(f"loop wakes late, p99: {who[name]}", quantile(seen.late, 0.99), "ms")
        yield Figure(f"loop wakes late, worst: {who[name]}", max(seen.late), "ms", goal)
        yield Figure(f"{_READS} reads on it, p99: {who[name]}", quantile(seen.reads, 0.99), "ms")
        if name != "nobody":
            yield Figure(f"answers a second: {who[name]}", seen.answers, "")


async def _watch(views: Views, path: str, clients: int, seconds: float) -> _Seen:
    server = AdminServer(views, path)
    await server.start()
    child = await _clients(path, clients, seconds) if clients else None
    seen = _Seen([], [])
    descriptor = os.open("/proc/self/stat", os.O_RDONLY | os.O_CLOEXEC)
    try:
        ends = time.perf_counter() + seconds
        while (began := time.perf_counter()) < ends:
            await asyncio.sleep(_WAKE_S)
            woken = time.perf_counter()
            seen.late.append(1000 * (woken - began - _WAKE_S))
            for _ in range(_READS):
                os.pread(descriptor, 4096, 0)
            seen.reads.append(1000 * (time.perf_counter() - woken))
            await asyncio.sleep(_BETWEEN_S)
        if child is not None:
            seen.answers = int(await _line(child)) / seconds
    finally:
        os.close(descriptor)
        if child is not None and child.returncode is None:
            child.kill()
            await child.wait()
        await server.stop()
    return seen


async def _clients(path: str, clients: int, seconds: float) -> Process:
    """Every one has had its first answer."""
    parent = os.getpid()
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _ASK,
        path,
        str(clients),
        str(seconds),
        *_TARGETS,
        stdout=subprocess.PIPE,
        preexec_fn=lambda: die_with_parent(parent),
    )
    await _line(child)
    return child


async def _line(child: Process) -> bytes:
    assert child.stdout is not None
    try:
        line = await asyncio.wait_for(child.stdout.readline(), _ANSWER_TIMEOUT_S)
    except TimeoutError:
        line = b""
    if not line:
        child.kill()
        raise TimeoutError("the clients were not answered")
    return line


def _fill(node: Node, records: int) -> None:
    """As a node with hooks and a strategy does."""
    rng = random.Random(1)
    inputs = (Input("node_cpu_usage", 1.25, "cores", 60.0, 0.4),)
    log, cgroups = node.parts.decisions, [pod.cgroup or "" for pod in node.pods]
    for number in range(records):
        owner = rng.choices(("cpu-suppress", "cpu-qos", "resctrl-qos"), (80, 15, 5))[0]
        why = Why(f"{owner}.allowance", "best-effort may use 1.25 of 4 cores", inputs)
        log.append(
            (
                Record(
                    1e9 + number,
                    Kind.WRITE,
                    owner,
                    why,
                    rng.choice(cgroups),
                    "cpu.cfs_quota_us",
                    number,
                    number + 1,
                    "written",
                ),
            )
        )
        if number % 100 == 0:
            log.flush()
    log.flush()
    if log.records < records:
        raise RuntimeError(f"the log holds {log.records} records, not {records}")


def _before(engine: Engine, target: str, limit: int) -> Lookup[ExplainView]:
    """All of it at once, on the loop: each line that may be about a file that was found before is
    decoded."""

    def needle(text: str) -> bytes:
        return msgspec.json.encode(text.rpartition("/")[0] or text)[1:-1]

    found: list[Record] = []
    wanted = "" if target == "node" else target
    needles, files = {needle(wanted)}, set[tuple[str, str]]()
    extent = engine.parts.decisions.extent()
    decode = msgspec.json.Decoder(Record).decode
    for path, _ in reversed(extent.files):
        for line in reversed(Path(path).read_bytes().splitlines()):
            if len(found) == limit:
                break
            if not any(each in line for each in needles):
                continue
            record = decode(line)
            if (record.cgroup, record.resource) not in files:
                if wanted and not matches(record, wanted):
                    continue
                files.add((record.cgroup, record.resource))
                needles.add(needle(record.cgroup))
            found.append(record)
    view = ExplainView(target=target, matched=target, decisions=tuple(found))
    return lambda pause=no_pause: view
