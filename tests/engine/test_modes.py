"""Observe, restore, restart, stop: who may write when, and what goes back."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from koordlet_fakefs.tree import resolve

from koordlet.actuator.journal.journal import Journal
from koordlet.admin.daemon import InvalidError
from koordlet.admin.model.status import Mode
from koordlet.config.load import load
from koordlet.config.origins import leaves
from koordlet.config.show import needs_restart
from koordlet.daemon.reload import until_restart
from koordlet.decision.resource import UNLIMITED, Resource
from koordlet.engine.parts import Callbacks, CannotStartError, build
from tests.daemon.world import APPLICATIONS, CPU_QOS, CPUS, LAYOUTS, World, suppress

MakeWorld = Callable[..., World]
QUOTA, IDLE = Resource.CPU_QUOTA_US, Resource.CPU_IDLE
BODY = suppress("cfsQuota") + CPU_QOS + APPLICATIONS
OBSERVE = '[daemon]\nmode = "observe"\n' + BODY


def busy(world: World) -> World:
    world.application("shop", 1.0)
    world.application("batch", CPUS)
    return world


def untouched(world: World) -> bool:
    return world.value("batch", QUOTA) == UNLIMITED and world.value("batch", IDLE) == 0


def results(world: World) -> list[str]:
    return [e.decision.result for e in world.parts.events.recent() if e.decision is not None]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_observe_writes_nothing_and_shows_everything(make_world: MakeWorld, layout: str) -> None:
    world = busy(make_world(OBSERVE, layout))
    world.start()
    world.run(12)
    assert not world.host.written
    assert not (world.directory / "state" / "journal").exists()
    assert world.views.status().mode is Mode.OBSERVE
    shown = {d.resource for d in world.views.explain("batch", 50)().decisions}
    assert {QUOTA, IDLE} <= shown
    assert {"would-write"} == set(results(world)) - {""}


def test_observe_then_enforce_then_observe_by_reload(make_world: MakeWorld) -> None:
    world = busy(make_world(OBSERVE))
    world.start()
    world.run(3)
    world.reload(BODY)
    world.run(1)
    assert not untouched(world)
    assert world.views.status().mode is Mode.ENFORCE
    world.reload(OBSERVE)
    quota, written = world.value("batch", QUOTA), len(world.host.written)
    world.host.set_demand(world.processes["shop"], 0.2)
    world.run(10)
    assert world.value("batch", QUOTA) == quota
    assert len(world.host.written) == written


def test_observing_beside_a_daemon_disturbs_nothing_and_may_not_enforce(
    make_world: MakeWorld,
) -> None:
    world = busy(make_world(BODY))
    world.start()
    world.run(3)
    beside = World(world.directory, OBSERVE)
    beside.host = world.host
    beside.start()
    beside.run(2)
    journal = world.views.status().journal
    assert beside.views.status().journal.entries == journal.entries > 0
    assert "only looked at" in beside.views.status().journal.why
    with pytest.raises(CannotStartError, match="another koordlet runs"):
        beside.reload(BODY)
    assert beside.engine.observing
    assert beside.loaded.config.daemon.mode == "observe"
    with pytest.raises(InvalidError, match="another koordlet runs"):
        beside.views.restore(dry_run=False)
    assert beside.views.restore(dry_run=True).complete
    assert not untouched(world)
    beside.stop()
    world.run(2)
    assert world.views.status().conflicts == ()


def test_a_second_daemon_is_refused_in_plain_words(make_world: MakeWorld) -> None:
    world = busy(make_world(BODY))
    world.start()
    callbacks = Callbacks(lambda: None, lambda wake: None, lambda outcome: None)
    with pytest.raises(CannotStartError, match=r"another koordlet runs: .*/journal"):
        build(world.host, load(str(world.file)).config, callbacks)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_restore_puts_back_and_is_a_pause(make_world: MakeWorld, layout: str) -> None:
    world = busy(make_world(BODY, layout))
    world.start()
    world.run(3)
    assert not untouched(world)
    dry = world.views.restore(dry_run=True)
    assert {item.result for item in dry.values} == {"would-restore"}
    assert not untouched(world)
    answer = world.views.restore(dry_run=False, by="root (pid 7)")
    assert answer.complete
    assert {(item.cgroup, item.resource) for item in answer.values} >= {
        ("batch", QUOTA),
        ("batch", IDLE),
    }
    assert untouched(world)
    assert answer.pause is not None
    assert (answer.pause.by, answer.pause.reason) == ("root (pid 7)", "koordlet restore")
    assert world.views.status().pauses == (answer.pause,)
    world.run(15)
    assert untouched(world)
    assert "would-write" in results(world)
    again = world.views.restore(dry_run=False)
    assert again.complete
    assert again.values == ()
    world.reload()
    world.run(5)
    assert untouched(world)
    world.views.resume((), (), by="root")
    world.run(1)
    assert not untouched(world)


def test_an_observing_daemon_restores_what_a_dead_one_left(make_world: MakeWorld) -> None:
    world = busy(make_world(BODY))
    world.start()
    world.run(3)
    world.stop()
    heir = World(world.directory, OBSERVE)
    heir.host = world.host
    heir.start()
    heir.run(2)
    assert not untouched(heir)
    answer = heir.views.restore(dry_run=False)
    assert answer.complete
    assert {item.result for item in answer.values} == {"restored"}
    assert untouched(heir)
    assert heir.views.status().journal.entries == 0
    assert not isinstance(heir.parts.journal, Journal)
    heir.stop()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_restart_adopts_what_is_in_force(make_world: MakeWorld, layout: str) -> None:
    world = busy(make_world(BODY, layout))
    world.start()
    world.run(15)  # until no small rise waits any more: a start has no memory of one
    quota = world.value("batch", QUOTA)
    world.stop()
    written = len(world.host.written)
    world.start()
    assert world.value("batch", QUOTA) == quota
    assert world.value("batch", IDLE) == 1
    assert len(world.host.written) == written
    world.run(3)
    assert world.value("batch", QUOTA) == pytest.approx(quota, rel=0.2)
    assert world.views.status().conflicts == ()
    world.views.restore(dry_run=False)
    assert untouched(world)


def test_what_was_switched_off_while_away_goes_back_at_once(make_world: MakeWorld) -> None:
    world = busy(make_world(BODY))
    world.start()
    world.run(3)
    world.stop()
    parts = ("strategies.cpu-suppress", "strategies.cpu-spread", "hooks.cpu-qos")
    off = "".join(f"[{part}]\nenable = false\n" for part in parts)
    world.file.write_text(world.file.read_text() + off)
    world.start()
    assert untouched(world)
    assert world.views.status().journal.entries == 0


def test_a_reboot_makes_the_journal_void(make_world: MakeWorld) -> None:
    world = busy(make_world(BODY))
    world.start()
    world.run(3)
    world.stop()
    rebooted = busy(World(world.directory, BODY))
    boot_id = resolve(rebooted.host.root, "/proc/sys/kernel/random/boot_id")
    boot_id.read = lambda: "another\n"
    rebooted.start()
    assert all(key.resource != QUOTA for key in rebooted.parts.journal.entries)
    assert rebooted.value("batch", QUOTA) == UNLIMITED
    rebooted.stop()


def test_keys_that_need_a_restart_keep_their_value(make_world: MakeWorld) -> None:
    world = busy(make_world(BODY))
    world.start()
    world.run(2)
    world.file.write_text(
        world.file.read_text().replace("/state", "/elsewhere") + "[daemon]\ntick_seconds = 2\n"
    )
    world.reload()
    status = world.views.status()
    assert status.journal.path == f"{world.directory}/state/journal"
    assert world.engine.loaded.config.daemon.tick_seconds == 2
    shown = {value.key: value for value in world.views.config().values}
    assert shown["paths.state_dir"].value == f'"{world.directory}/state"'
    assert shown["paths.state_dir"].origin.endswith("after a restart")
    answer = world.views.restore(dry_run=True)
    assert {item.result for item in answer.values} == {"would-restore"}


def test_every_key_that_needs_a_restart_is_kept(make_world: MakeWorld) -> None:
    """The sample has every key; whatever is marked is the same object afterwards."""
    world = make_world(BODY)
    old = load(str(world.file))
    marked = [leaf.path for leaf in leaves(old.config) if needs_restart(leaf.type)]
    assert "paths.state_dir" in marked
    assert "sources.kubepods" in marked
    paths = msgspec.structs.replace(old.config.paths, state_dir="/x", proc_root="/y")
    sources = msgspec.structs.replace(old.config.sources, kubepods=False, rescan_seconds=3.0)
    new = msgspec.structs.replace(
        old, config=msgspec.structs.replace(old.config, paths=paths, sources=sources)
    )
    kept, found = until_restart(old, new)
    assert kept.config.paths == old.config.paths
    assert kept.config.sources.kubepods is True
    assert kept.config.sources.rescan_seconds == 3.0
    assert set(found.needs_restart) == {"paths.state_dir", "paths.proc_root", "sources.kubepods"}
    assert set(found.changed) == {*found.needs_restart, "sources.rescan_seconds"}
