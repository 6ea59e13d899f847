"""The collector of RDMA devices on the fake sysfs."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from koordlet_fakefs.devices import Devices

from koordlet.collectors.devices import rdma_rates
from koordlet.collectors.devices.rdma import RdmaCollector
from koordlet.decision.devices import Inventory
from tests.collectors.devices.rounds import begin, collector, reading, wait
from tests.collectors.world import World

ADDRESS = "0000:3b:00.0"


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def devices(world: World) -> Devices:
    found = Devices(world.host.root)
    found.add_pci(ADDRESS)
    return found


def read(world: World) -> dict[tuple[str, ...], float]:
    found = world.samples(reading(world, "rdma"))
    return {key: value for key, value in found.items() if "rdma" in (key[0][5:9], key[-1])}


def of(world: World) -> RdmaCollector:
    found = collector(world, "rdma")
    assert isinstance(found, RdmaCollector)
    return found


def inventory(world: World) -> Inventory:
    found = of(world).inventory
    assert found is not None
    return found


def test_a_machine_without_rdma_is_quiet(world: World) -> None:
    begin(world)
    health: Any = world.health("rdma")
    assert health.success and not health.error and health.samples == 0
    (capability,) = of(world).capabilities
    assert capability.why == "no RDMA device: /sys/class/infiniband does not exist or is empty"
    assert not of(world)._aside.runs


def test_rates_need_two_readings(world: World, devices: Devices) -> None:
    """11 s lie between them. 1,100 words of four bytes are 400 bytes a second."""
    devices.add_rdma(
        "mlx5_0",
        ADDRESS,
        counters={"port_rcv_data": 0, "port_xmit_data": 5},
        hardware={"out_of_sequence": 0, "rx_icrc_encapsulated": 9},
    )
    health = ("node_device_healthy", ADDRESS, "0", "rdma")
    assert read(world) == {health: 1.0}
    devices.count("mlx5_0", "counters/port_rcv_data", 1100)
    devices.count("mlx5_0", "counters/port_xmit_data", 5 + 2200)
    devices.count("mlx5_0", "hw_counters/out_of_sequence", 33)
    assert read(world) == {
        health: 1.0,
        ("node_rdma_received", "mlx5_0", "1"): 400.0,
        ("node_rdma_sent", "mlx5_0", "1"): 800.0,
        ("node_rdma_counter", "out_of_sequence", "mlx5_0", "1"): 3.0,
        ("node_rdma_counter", "rx_icrc_encapsulated", "mlx5_0", "1"): 0.0,
    }
    (device,) = inventory(world).rdma
    assert (device.ports[0].received_per_s, device.ports[0].sent_per_s) == (400.0, 800.0)
    (capability,) = of(world).capabilities
    assert capability.supported and capability.why.startswith("mlx5_0; a reading takes ")


def test_errors_of_the_port_itself(world: World, devices: Devices) -> None:
    counters = {"symbol_error": 0, "port_xmit_wait": 0, "port_rcv_packets": 0}
    devices.add_rdma("mlx4_0", ADDRESS, counters=counters)
    read(world)
    for name, value in (("symbol_error", 22), ("port_xmit_wait", 11), ("port_rcv_packets", 99)):
        devices.count("mlx4_0", f"counters/{name}", value)
    assert read(world) == {
        ("node_device_healthy", ADDRESS, "0", "rdma"): 1.0,
        ("node_rdma_counter", "symbol_error", "mlx4_0", "1"): 2.0,
        ("node_rdma_counter", "port_xmit_wait", "mlx4_0", "1"): 1.0,
    }


def test_a_device_in_software_has_packets_alone(world: World, devices: Devices) -> None:
    devices.add_rdma("rxe0", hardware={"sent_pkts": 100})
    read(world)
    devices.count("rxe0", "hw_counters/sent_pkts", 210)
    assert read(world) == {
        ("node_device_healthy", "rxe0", "0", "rdma"): 1.0,
        ("node_rdma_counter", "sent_pkts", "rxe0", "1"): 10.0,
    }


def test_a_counter_that_starts_anew_has_no_negative_rate(world: World, devices: Devices) -> None:
    devices.add_rdma("mlx5_0", ADDRESS, counters={"port_rcv_data": 1000}, hardware={"errors": 7})
    read(world)
    devices.count("mlx5_0", "counters/port_rcv_data", 10)
    devices.count("mlx5_0", "hw_counters/errors", 0)
    assert [key[0] for key in read(world)] == ["node_device_healthy"]
    devices.count("mlx5_0", "counters/port_rcv_data", 10 + 11)
    assert read(world)["node_rdma_received", "mlx5_0", "1"] == 4.0


def test_a_port_that_goes_down_and_a_device_that_goes(world: World, devices: Devices) -> None:
    directory = devices.add_rdma("mlx5_0", ADDRESS)
    devices.add_rdma("rxe0")
    key = ("node_device_healthy", ADDRESS, "0", "rdma")
    assert read(world)[key] == 1.0
    devices.set_state("mlx5_0", "1: DOWN")
    assert read(world)[key] == 0.0
    assert inventory(world).rdma[0].health.why == "port 1 is DOWN"
    del directory
    devices.remove_rdma("mlx5_0")
    assert key not in read(world)
    devices.remove_rdma("rxe0")
    assert read(world) == {}
    assert not of(world).capabilities[0].supported


def test_firmware_that_hangs_stops_no_round(
    world: World, devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices.add_rdma("mlx5_0", ADDRESS)
    assert len(read(world)) == 1
    go_on, real = threading.Event(), rdma_rates.read_devices

    def slow(*arguments: Any) -> Any:
        go_on.wait(60)
        return real(*arguments)

    monkeypatch.setattr(rdma_rates, "read_devices", slow)
    begin(world)
    world.host.advance(11)
    found = world.samples(world.round())
    assert ("node_memory_usage",) in found
    health: Any = world.health("rdma")
    assert health.error.startswith("TimeoutError: reading RDMA devices has taken 11 s and goes on")
    assert not of(world).capabilities[0].supported
    assert of(world).inventory is None
    go_on.set()
    wait(world, "rdma")
    found = world.samples(world.rounds())
    assert ("node_device_healthy", ADDRESS, "0", "rdma") in found


def test_collectors_made_anew_begin_no_second_reading_beside_one_that_hangs(
    world: World, devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices.add_rdma("mlx5_0", ADDRESS)
    go_on, calls, real = threading.Event(), [], rdma_rates.read_devices

    def slow(*arguments: Any) -> Any:
        calls.append(arguments)
        go_on.wait(60)
        return real(*arguments)

    monkeypatch.setattr(rdma_rates, "read_devices", slow)
    begin(world)
    old, machine = of(world), world.machine
    old.close()
    new = RdmaCollector(machine)
    world.host.advance(5)
    assert new.has_ended  # it wants to say so
    with pytest.raises(TimeoutError, match="has taken 5 s and goes on"):
        new.collect(world.new_round())
    assert not new.has_ended
    assert len(calls) == 1
    go_on.set()
    wait(world, "rdma")
    new.collect(world.new_round())
    assert machine.asides.rdma.wait(60)
    new.collect(world.new_round())
    assert new.inventory is not None and len(calls) == 2
