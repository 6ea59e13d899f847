"""Cold memory in `pods` and `top`."""

from __future__ import annotations

from koordlet.admin.model.usage import ColdView, PodView, TopView
from koordlet.cli.show.keys import Screen
from koordlet.cli.show.pods import lines
from koordlet.cli.show.screen import Frame, draw
from koordlet.decision.record import PodKind
from koordlet.drawing.spans import plain

MIB = 1 << 20


def pod(name: str, cold: ColdView | None) -> PodView:
    return PodView(
        kind=PodKind.POD, uid=name, name=name, namespace="ns", qos="BE", kube_qos="BestEffort",
        cgroup=f"kubepods/besteffort/pod{name}", cold=cold,
    )  # fmt: skip


def test_pods_with_something_cold_or_coming_back_have_a_section() -> None:
    found = lines(
        (
            pod("a", ColdView(method="mglru", file_bytes=16 * MIB, anon_bytes=0,
                              confirmed_bytes=4 * MIB, refault_bytes_per_s=2048.0)),
            pod("b", ColdView(refault_bytes_per_s=4096.0)),
            pod("quiet", ColdView(refault_bytes_per_s=0.0)),
            pod("unknown", None),
        )
    )  # fmt: skip
    section = found[found.index("Cold memory, found by mglru:") :]
    assert [line.split() for line in section[1:]] == [
        ["NAME", "PAGE", "CACHE", "ANON", "MAPPED", "CONFIRMED", "REFAULTS/S"],
        ["ns/a", "16.0", "MiB", "0", "B", "-", "4.0", "MiB", "2.0", "KiB"],
        ["ns/b", "-", "-", "-", "-", "4.0", "KiB"],
    ]


def test_without_any_there_is_none() -> None:
    found = lines((pod("quiet", ColdView(refault_bytes_per_s=0.0)), pod("unknown", None)))
    assert not [line for line in found if "emory" in line]
    reclaimed = lines((pod("b", ColdView(confirmed_bytes=MIB)),))
    assert "Memory that was reclaimed:" in reclaimed


def test_top_says_how_much_of_the_node_is_cold() -> None:
    def memory(cold: ColdView | None) -> str:
        view = TopView(
            time=0.0, node="n", cpu_capacity_cores=4.0, memory_capacity_bytes=1 << 30,
            memory_used_bytes=512 * MIB, cold=cold,
        )  # fmt: skip
        return next(plain(each) for each in draw(Frame(view), Screen()) if "Memory" in plain(each))

    known = ColdView(method="mglru", file_bytes=100 * MIB, anon_bytes=50 * MIB)
    assert memory(known).endswith("1.0 GiB  cold: page cache 100.0 MiB, anonymous 50.0 MiB")
    assert memory(None).endswith("1.0 GiB") and memory(ColdView()).endswith("1.0 GiB")
