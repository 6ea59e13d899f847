"""RDMA devices on the fake sysfs."""

from __future__ import annotations

import pytest
from koordlet_fakefs import FakeHost
from koordlet_fakefs.devices import Devices, put

from koordlet.decision.devices import HEALTHY, Place, RdmaDevice, RdmaPort, State
from koordlet.kernel.devices import rdma
from koordlet.kernel.devices.rdma import PortCounters, number, read_counters, read_devices

ACTIVE = RdmaPort(1, "ACTIVE", "100 Gb/sec (4X EDR)", "Ethernet")


@pytest.fixture
def host() -> FakeHost:
    return FakeHost()


@pytest.fixture
def devices(host: FakeHost) -> Devices:
    return Devices(host.root)


def test_a_card_with_virtual_functions(host: FakeHost, devices: Devices) -> None:
    """These have RDMA devices of their own, which are not listed."""
    devices.add_pci("0000:3b:00.0", numa=1)
    devices.add_virtual_functions("0000:3b:00.0", "0000:3b:00.3", "0000:3b:00.2")
    devices.add_rdma("mlx5_0", "0000:3b:00.0", network="ens1f0")
    devices.add_rdma("mlx5_1", "0000:3b:00.2")
    devices.add_rdma("mlx5_2", "0000:3b:00.3")
    assert read_devices(host) == (
        RdmaDevice(
            name="mlx5_0",
            minor=0,
            place=Place("0000:3b:00.0", "pci0000:3a", 1),
            ports=(ACTIVE,),
            virtual_functions=("0000:3b:00.2", "0000:3b:00.3"),
            network_devices=("ens1f0",),
            health=HEALTHY,
        ),
    )


def test_without_sriov_there_are_no_functions(host: FakeHost, devices: Devices) -> None:
    put(devices.add_pci("0000:3b:00.0"), "sriov_numvfs", "0\n")
    devices.add_rdma("mlx5_0", "0000:3b:00.0")
    assert read_devices(host)[0].virtual_functions == ()


def test_a_device_in_software_has_no_place(host: FakeHost, devices: Devices) -> None:
    devices.add_rdma("rxe0")
    (found,) = read_devices(host)
    assert (found.name, found.minor, found.place) == ("rxe0", 0, Place())
    assert found.health is HEALTHY


def test_the_first_name_of_a_function_stands_for_it(host: FakeHost, devices: Devices) -> None:
    devices.add_pci("0000:3b:00.0")
    devices.add_rdma("mlx5_1", "0000:3b:00.0")
    devices.add_rdma("mlx5_0", "0000:3b:00.0")
    assert [each.name for each in read_devices(host)] == ["mlx5_0"]


@pytest.mark.parametrize(
    ("ports", "why"),
    [
        (("4: ACTIVE", "1: DOWN"), "port 2 is DOWN"),
        (("2: INIT", "1: DOWN"), "port 1 is INIT; port 2 is DOWN"),
        (("3: ARMED",), "port 1 is ARMED"),
        ((), "it has no port"),
    ],
)
def test_each_port_must_be_active(
    host: FakeHost, devices: Devices, ports: tuple[str, ...], why: str
) -> None:
    devices.add_rdma("mlx5_0", ports=ports)
    (found,) = read_devices(host)
    assert (found.health.state, found.health.why) == (State.UNHEALTHY, why)


def test_files_that_a_driver_lacks(host: FakeHost, devices: Devices) -> None:
    directory = devices.add_rdma("siw0", ports=("4: ACTIVE",))
    del directory.entries["ports"].entries["1"].entries["rate"]  # type: ignore[union-attr]
    assert read_devices(host)[0].ports == (RdmaPort(1, "ACTIVE", "", "Ethernet"),)


@pytest.mark.parametrize(
    ("addresses", "minors"),
    [
        ({"mlx5_0": "a", "mlx5_1": "b", "mlx5_10": "c"}, {"mlx5_0": 0, "mlx5_1": 1, "mlx5_10": 10}),
        # The reference gives both 0 (D-14).
        ({"mlx4_0": "a", "mlx5_0": "b"}, {"mlx5_0": 0, "mlx4_0": 1}),
        # As udev names them, after their address.
        ({"rocep60s0f0": "b", "rocep59s0f1": "a"}, {"rocep59s0f1": 0, "rocep60s0f0": 1}),
        (
            {"bnxt_re0": "a", "mlx5_0": "b", "mlx5_3": "c"},
            {"mlx5_0": 0, "mlx5_3": 3, "bnxt_re0": 4},
        ),
        ({"rxe1": "", "rxe0": "", "efa_0": "a"}, {"efa_0": 0, "rxe0": 1, "rxe1": 2}),
        ({"mlx5_99999": "a", "mlx5_bond_0": "b"}, {"mlx5_99999": 0, "mlx5_bond_0": 1}),
        ({}, {}),
    ],
)
def test_each_device_has_a_minor_of_its_own(
    addresses: dict[str, str], minors: dict[str, int]
) -> None:
    assert number(addresses) == minors
    assert number(dict(reversed(addresses.items()))) == minors


def test_counters(host: FakeHost, devices: Devices) -> None:
    """Data is counted in words of four bytes. Of hardware counters one is a setting, and one the
    card does not tell."""
    devices.add_rdma(
        "mlx5_0",
        counters={"port_rcv_data": 1000, "port_xmit_data": 25},
        hardware={"out_of_sequence": 3, "lifespan": 10, "rnr_nak_retry_err": 7},
    )
    devices.refuse("mlx5_0", "hw_counters/rnr_nak_retry_err")
    (device,) = read_devices(host)
    assert read_counters(host, device) == [
        PortCounters("mlx5_0", 1, 4000, 100, {"out_of_sequence": 3})
    ]


def test_a_device_in_software_counts_packets_alone(host: FakeHost, devices: Devices) -> None:
    devices.add_rdma("rxe0", hardware={"rcvd_pkts": 5, "sent_pkts": 6})
    (device,) = read_devices(host)
    assert read_counters(host, device) == [
        PortCounters("rxe0", 1, None, None, {"rcvd_pkts": 5, "sent_pkts": 6})
    ]


def test_how_much_is_read_is_bounded(
    host: FakeHost, devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, most in (("MOST_DEVICES", 3), ("MOST_PORTS", 2), ("MOST_COUNTERS", 4)):
        monkeypatch.setattr(rdma, name, most)
    many = {f"counter{number}": number for number in range(9)}
    for index in range(5):
        devices.add_rdma(f"mlx5_{index}", ports=("4: ACTIVE",) * 5, hardware=many)
    found = read_devices(host)
    assert [len(each.ports) for each in found] == [2, 2, 2]
    assert [len(each.others) for each in read_counters(host, found[0])] == [4, 4]


def test_what_goes_while_it_is_read_is_left_out(host: FakeHost, devices: Devices) -> None:
    devices.add_rdma("mlx5_0", counters={"port_rcv_data": 1})
    (device,) = read_devices(host)
    devices.remove_rdma("mlx5_0")
    assert read_counters(host, device) == [PortCounters("mlx5_0", 1, None, None, {})]
    assert read_devices(host) == ()
