"""What `koordlet config check` accepts, a daemon starts with: both read by the same function."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import msgspec
import msgspec.inspect as mi
import pytest
from koordlet_fakefs import FakeHost

from koordlet.actuator.journal.journal import Journal
from koordlet.config.errors import ConfigErrors
from koordlet.config.load import Loaded
from koordlet.config.origins import leaves
from koordlet.config.sample import sample
from koordlet.config.schema import Config, FailurePolicy
from koordlet.config.show import toml_text
from koordlet.daemon.reload import read_config
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Capability
from koordlet.engine.absent import PART
from koordlet.engine.engine import PLUGIN, Engine
from koordlet.engine.parts import Callbacks, build
from koordlet.protocol.decode import bare_type, format_of, plain
from koordlet.protocol.slo_defaults import DEFAULTS
from tests.daemon import everything
from tests.daemon.world import APPLICATIONS, CPU_QOS, NO_ALARMS
from tests.daemon.world import suppress as suppressing
from tests.test_docs import FENCE, PAGES

FEATURES = (Resource.CPU_QUOTA_US, Resource.CPUSET_CPUS, Resource.CPU_SHARES, Resource.CPU_IDLE)


def start(file: Path, host: FakeHost, root: Path) -> dict[str, str]:
    """What does not work after three ticks of a daemon with this file. Raises ConfigErrors where
    the file is refused. Paths are moved into ``root``."""
    loaded = moved(read_config(str(file), host, observe=False), root)
    engine: Engine
    callbacks = Callbacks(lambda: None, lambda wake: None, lambda outcome: engine.heard(outcome))
    parts = build(host, loaded.config, callbacks)
    try:
        engine = Engine(parts, loaded)
        sources = [source for source in parts.sources if source is not parts.cri]
        for source in sources:
            source.start(lambda: None)
        engine.set_capabilities([Capability(str(each), True, "tried") for each in FEATURES])
        for _ in range(3):
            host.advance(1.0)
            engine.rescan()
            engine.tick()
        # The fake kernel has no network.
        # The examples name applications that this machine does not have.
        machine = ("network-qos", PART)
        return {part: why for part, why in parts.problems.items() if not part.startswith(machine)}
    finally:
        parts.alarms.close()
        parts.traffic.close()
        parts.state.stop()
        parts.runner.close()
        parts.decisions.close()
        parts.store.close()
        if isinstance(parts.journal, Journal):
            parts.journal.close()


def moved(loaded: Loaded, root: Path) -> Loaded:
    config = loaded.config
    paths = msgspec.structs.replace(config.paths, state_dir=f"{root}/state", run_dir=f"{root}/run")
    tsdb = msgspec.structs.replace(config.tsdb, path="")
    config = msgspec.structs.replace(config, paths=paths, tsdb=tsdb)
    return msgspec.structs.replace(loaded, config=config)


def samples() -> Iterator[Any]:
    yield pytest.param("", id="empty")
    yield pytest.param(sample(), id="sample")
    settings = sample().partition("#[[applications]]")[0]
    yield pytest.param(re.sub(r"^#(?=\S)", "", settings, flags=re.M), id="sample taken up")
    slo = everything.SLO.format(cpu_policy="groupIdentity", net_policy="tc")
    yield pytest.param(everything.NODE + slo + everything.APPLICATIONS, id="everything")
    yield pytest.param(suppressing() + CPU_QOS + APPLICATIONS + NO_ALARMS, id="suppress")
    for page in PAGES:
        for number, (language, body) in enumerate(FENCE.findall(page.read_text())):
            if language == "toml":
                yield pytest.param(body, id=f"{page.name}-{number}")


@pytest.mark.parametrize("body", list(samples()))
def test_what_is_accepted_starts(tmp_path: Path, body: str) -> None:
    file = tmp_path / "koordlet.toml"
    file.write_text(body)
    problems = start(file, FakeHost("hybrid"), tmp_path)
    # Pages show how to switch on parts of packages that are not installed here.
    assert [each for each in problems if not each.startswith(PLUGIN)] == []


OTHERS: dict[str, tuple[object, ...]] = {
    # What the type does not tell.
    "node.labels": ({"pool": "xl"},),
    "node.annotations": ({"node.koordinator.sh/cpu-normalization-ratio": "1.5"}, {"x/y": ""}),
    "node.reserved_cpus": ("0", "4096"),
    "node.system_qos_cpus": ("1",),
    "node.allocatable": ({"cpu": "3500m", "kubernetes.io/batch-cpu": 4000},),
    "metrics.listen": ("off", "[::1]:0", "remote:0.0.0.0:1", "unix:/run/x.sock"),
    "sources.cri": ("auto", "off", "/run/none.sock"),
    "sources.kubepods_root": ("kubepods", "lxc/node/kubepods.slice"),
    "nri.plugin_index": ("99",),
    "hooks.network-qos.devices": (("eth0",),),
    "hooks.failure_policy": get_args(FailurePolicy),
}


def values(info: mi.Type) -> tuple[object, ...]:
    """The edges of what a key takes."""
    name, kind = format_of(plain(info)), bare_type(info)
    if isinstance(kind, mi.UnionType):
        return values(next(each for each in kind.types if not isinstance(each, mi.NoneType)))
    if isinstance(kind, mi.BoolType):
        return (True, False)
    if isinstance(kind, mi.LiteralType):
        return tuple(kind.values)
    if isinstance(kind, mi.IntType | mi.FloatType):
        edges = {kind.ge if kind.ge is not None else 0, kind.le, kind.gt and kind.gt + 1}
        whole = isinstance(kind, mi.IntType)
        given = sorted(int(edge) if whole else edge for edge in edges if edge is not None)
        if name == "duration":
            return tuple(f"{edge:g}s" for edge in given)
        return tuple(given)
    return ()


def settings() -> dict[str, tuple[object, ...]]:
    found = dict(OTHERS)
    for leaf in (*leaves(Config()), *leaves(DEFAULTS, "slo")):
        if leaf.path.startswith(("paths.", "applications", "slo.extensions")):
            continue
        if leaf.path not in found and (edges := values(leaf.type)):
            found[leaf.path] = edges
    return found


SETTINGS = settings()


@pytest.mark.parametrize("seed", range(25))
def test_random_configurations_are_refused_or_start(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    file = tmp_path / "koordlet.toml"
    accepted = 0
    for attempt in range(4):
        chosen = rng.sample(sorted(SETTINGS), rng.randint(1, 25))
        rows = [f"{key} = {toml_text(mi.AnyType(), rng.choice(SETTINGS[key]))}" for key in chosen]
        file.write_text("\n".join(rows))
        root = tmp_path / str(attempt)
        root.mkdir()
        layout = rng.choice(("v1", "hybrid", "v2"))
        with suppress(ConfigErrors):
            assert start(file, FakeHost(layout), root) == {}, rows
            accepted += 1
    assert accepted or seed


def test_every_kind_of_key_is_tried() -> None:
    """The table above must not fall behind the schema."""
    left_out = {
        leaf.path
        for leaf in leaves(Config())
        if leaf.path not in SETTINGS and leaf.path != "applications"
    }
    assert left_out == {
        *("node.name", "paths.state_dir", "paths.run_dir", "paths.cgroup_root"),
        *("paths.proc_root", "paths.sys_root", "api.socket", "api.group", "tsdb.path"),
        "prediction.checkpoint_path",
        *("cluster.api", "cluster.context", "cluster.kubelet_ca", "cluster.kubelet_dir"),
        "cluster.pod_resources",
        *("nri.socket", "nri.plugin_name", "hook-server.socket", "hook-server.config_dir"),
        *("hooks.gpu-env.hami_library", "slo.file", "collectors.xpu.directory"),
    }
