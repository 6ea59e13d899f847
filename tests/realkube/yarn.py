"""A real ResourceManager and NodeManager of YARN on free ports of loopback, in a directory of their
own, of what `tools/fetch-yarn` has fetched."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from tests.realkube.control_plane import free_ports
from tests.runtime.process import Process

TOOL = Path(__file__).parents[2] / "tools" / "fetch-yarn"
READY_S = 90.0
_PACKAGE = "org.apache.hadoop.yarn.server"
_LOG = """\
log4j.rootLogger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d %p %c{1}: %m%n
"""
_CAPACITY = {
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    # An application's master may take all of this small cluster.
    "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
}


@lru_cache(maxsize=1)
def directory() -> Path:
    done = subprocess.run([TOOL, "--where"], capture_output=True, text=True, check=True)
    return Path(done.stdout.strip())


def why_not() -> str:
    """Why there is no YARN; empty where there is."""
    if "KOORDLET_CLUSTER" not in os.environ:
        return "a real YARN is for make test-cluster (KOORDLET_CLUSTER=1)"
    if shutil.which("java") is None:
        return "no Java runs here"
    if not (directory() / "version").exists():
        return "no YARN is fetched here: tools/fetch-yarn (some 20 seconds; needs Maven)"
    return ""


class RealYarn:
    """One node, ``node``, that says it has 1 CPU and 1 GiB."""

    def __init__(self, work: Path) -> None:
        self.work = work
        names = ("web", "client", "scheduler", "tracker", "admin", "node", "localizer", "node-web")
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.url = f"http://127.0.0.1:{ports['web']}"
        self.node = f"localhost:{ports['node']}"
        self._configure(ports)
        self._manager = self._process("resourcemanager.ResourceManager", "rm.log")
        self._node = self._process("nodemanager.NodeManager", "nm.log")

    def start(self) -> None:
        self._manager.start()
        self._node.start()
        self.until_running()

    def restart_node(self) -> None:
        self._node.end()
        self._node.start()

    def restart_manager(self) -> None:
        self._manager.end()
        self._manager.start()

    def stop(self) -> None:
        self._node.end()
        self._manager.end()

    def nodes(self) -> list[dict[str, Any]]:
        """Those that run, as it answers; none while it does not answer."""
        try:
            answer = self.ask("/nodes?states=RUNNING")
        except (OSError, urllib.error.URLError):
            return []
        found: list[dict[str, Any]] = answer["nodes"].get("node", [])
        return found

    def total(self) -> tuple[int, int]:
        for each in self.nodes():
            return each["totalResource"]["vCores"], each["totalResource"]["memory"]
        return (-1, -1)

    def used(self) -> tuple[int, int]:
        for each in self.nodes():
            return each["usedResource"]["vCores"], each["usedResource"]["memory"]
        return (-1, -1)

    def ask(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self.url}/ws/v1/cluster{path}", data, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def submit(self, command: str, vcores: int, memory_mib: int) -> str:
        """An application whose one container runs ``command``; its id."""
        made = self.ask("/apps/new-application?user.name=root", {})["application-id"]
        self.ask(
            "/apps?user.name=root",
            {
                "application-id": made,
                "application-name": "test",
                "application-type": "YARN",
                "am-container-spec": {"commands": {"command": command}},
                "resource": {"memory": memory_mib, "vCores": vcores},
                "max-app-attempts": 1,
            },
        )
        return str(made)

    def until_running(self) -> None:
        ends_s = time.monotonic() + READY_S
        while not self.nodes():
            if time.monotonic() > ends_s:
                tail = (self.work / "rm.log").read_text()[-2000:]
                raise TimeoutError(f"no NodeManager runs after {READY_S:.0f} s: {tail}")
            time.sleep(0.2)

    def _process(self, name: str, log: str) -> Process:
        command = [
            *("java", "-Xmx256m", "--add-opens", "java.base/java.lang=ALL-UNNAMED"),
            *("-cp", f"{self.work / 'conf'}:{directory() / 'lib'}/*", f"{_PACKAGE}.{name}"),
        ]
        return Process(command, self.work / log)

    def _configure(self, ports: dict[str, int]) -> None:
        conf = self.work / "conf"
        conf.mkdir(parents=True)
        at = "127.0.0.1:{}".format
        (conf / "log4j.properties").write_text(_LOG)
        _write(conf / "core-site.xml", {"hadoop.tmp.dir": str(self.work / "tmp")})
        _write(conf / "capacity-scheduler.xml", _CAPACITY)
        manager, node = "yarn.resourcemanager", "yarn.nodemanager"
        _write(
            conf / "yarn-site.xml",
            {
                f"{manager}.webapp.address": at(ports["web"]),
                f"{manager}.address": at(ports["client"]),
                f"{manager}.scheduler.address": at(ports["scheduler"]),
                f"{manager}.resource-tracker.address": at(ports["tracker"]),
                f"{manager}.admin.address": at(ports["admin"]),
                "yarn.scheduler.minimum-allocation-mb": "128",
                "yarn.scheduler.capacity.resource-calculator": (
                    "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator"
                ),
                f"{node}.address": at(ports["node"]),
                f"{node}.localizer.address": at(ports["localizer"]),
                f"{node}.webapp.address": at(ports["node-web"]),
                f"{node}.resource.memory-mb": "1024",
                f"{node}.resource.cpu-vcores": "1",
                f"{node}.vmem-check-enabled": "false",
                f"{node}.local-dirs": str(self.work / "local"),
                f"{node}.log-dirs": str(self.work / "logs"),
                # The disk of a machine for tests may be as full as it likes.
                f"{node}.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
                f"{node}.disk-health-checker.min-free-space-per-disk-mb": "0",
            },
        )


def _write(path: Path, properties: dict[str, str]) -> None:
    lines = (
        f"<property><name>{name}</name><value>{value}</value></property>\n"
        for name, value in properties.items()
    )
    path.write_text(f"<configuration>\n{''.join(lines)}</configuration>\n")


@contextlib.contextmanager
def real_yarn(work: Path) -> Iterator[RealYarn]:
    made = RealYarn(work)
    try:
        made.start()
        yield made
    finally:
        made.stop()
