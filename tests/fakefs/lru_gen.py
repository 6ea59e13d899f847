"""MGLRU: the generations of each memory cgroup and NUMA node, and ``lru_gen`` of debugfs
(Linux ``Documentation/admin-guide/mm/multigen_lru.rst``, ``mm/vmscan.c`` of 6.12 and, with
``lru_gen_feedback``, after "rework aging feedback" of 6.14)."""

from __future__ import annotations

import errno
from itertools import count

from koordlet_fakefs.machine import Machine
from koordlet_fakefs.parse import PAGE_BYTES, refuse
from koordlet_fakefs.resources.memory import MemoryState, states_below
from koordlet_fakefs.tree import Directory, Leaf, add_directory

MOST_GENERATIONS = 4


class _Lists:
    """Pages by generation, [anonymous, file]. New anonymous pages are in the youngest one, pages
    that were read from a file in the oldest."""

    def __init__(self, now_ns: int) -> None:
        self.pages = {number: [0, 0] for number in range(MOST_GENERATIONS)}
        self.born_ns = dict.fromkeys(self.pages, now_ns)

    @property
    def newest(self) -> int:
        return max(self.pages)

    def follow(self, totals: tuple[int, int]) -> None:
        for kind, total in enumerate(totals):
            more = total - sum(each[kind] for each in self.pages.values())
            if more > 0:
                self.pages[min(self.pages) if kind else self.newest][kind] += more
            for number in sorted(self.pages):
                taken = min(-more, self.pages[number][kind]) if more < 0 else 0
                self.pages[number][kind] -= taken
                more += taken

    def age(self, cold: tuple[int, int], now_ns: int) -> None:
        """What is not cold was accessed, and comes into the youngest generation there is."""
        newest = self.newest
        for kind, left in enumerate(cold):
            for number in sorted(self.pages):
                held = self.pages[number][kind]
                stays = held if number == newest else min(held, left)
                left -= min(held, left)
                self.pages[number][kind] = stays
                self.pages[newest][kind] += held - stays
        self.pages[newest + 1] = [0, 0]
        self.born_ns[newest + 1] = now_ns
        while len(self.pages) > MOST_GENERATIONS:
            oldest = min(self.pages)
            gone = self.pages.pop(oldest)
            del self.born_ns[oldest]
            for kind in (0, 1):
                self.pages[oldest + 1][kind] += gone[kind]


class _LruGen:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._numbers = count(1)
        self._ids: dict[MemoryState, int] = {}
        self._lists: dict[tuple[MemoryState, int], _Lists] = {}

    def _states(self) -> list[MemoryState]:
        hierarchy = self._machine.hierarchy_of("memory")
        states = states_below(hierarchy.root) if hierarchy else []
        for state in states:
            if state not in self._ids:
                self._ids[state] = next(self._numbers)
        return states

    def _of(self, state: MemoryState, node: int) -> _Lists:
        key = state, node
        if key not in self._lists:
            self._lists[key] = _Lists(self._machine.now_ns)
        lists = self._lists[key]
        anon = sum(pages.get(node, 0) for pages in state.anon.values()) // PAGE_BYTES
        lists.follow((anon, state.file_bytes.get(node, 0) // PAGE_BYTES))
        return lists

    def text(self) -> str:
        lines = []
        for state in self._states():
            lines.append(f"memcg {self._ids[state]:>5} /{state.group.path}")
            for node in sorted(self._machine.options.topology.nodes):
                lines.append(f" node {node:>5}")
                lists = self._of(state, node)
                for number, (anon, file) in sorted(lists.pages.items()):
                    age_ms = (self._machine.now_ns - lists.born_ns[number]) // 1_000_000
                    lines.append(f" {number:>10} {age_ms:>10} {anon:>10}  {file:>10} ")
        return "\n".join(lines) + "\n"

    def write(self, text: str) -> None:
        commands = text.replace(",", "\n").replace(";", "\n").split("\n")
        if not any(map(str.strip, commands)):
            raise refuse(errno.EINVAL)
        for command in filter(str.strip, commands):
            self._run(command.split())

    def _run(self, words: list[str]) -> None:
        if len(words) not in (4, 5, 6) or words[0] != "+" or not all(map(str.isdigit, words[1:])):
            raise refuse(errno.EINVAL)
        memcg, node, number = map(int, words[1:4])
        states = {self._ids[state]: state for state in self._states()}
        if memcg not in states or node not in self._machine.options.topology.nodes:
            raise refuse(errno.EINVAL)
        lists = self._of(states[memcg], node)
        if number > lists.newest:
            raise refuse(errno.EINVAL)
        if number == lists.newest or self._machine.options.lru_gen_feedback:
            lists.age(self._cold_pages(states[memcg], node), self._machine.now_ns)

    def _cold_pages(self, state: MemoryState, node: int) -> tuple[int, int]:
        """By the node's share of what the cgroup has."""
        anon = sum(pages.get(node, 0) for pages in state.anon.values())
        shares = (
            (state.cold_anon_bytes, anon, state.own_anon_bytes),
            (state.cold_file_bytes, state.file_bytes.get(node, 0), state.own_file_bytes),
        )
        found = [
            cold * here // everywhere if everywhere else 0 for cold, here, everywhere in shares
        ]
        return found[0] // PAGE_BYTES, found[1] // PAGE_BYTES


def build(sys: Directory, machine: Machine) -> None:
    made = _LruGen(machine)
    switch = ["0x0007"]

    def enable(text: str) -> None:
        switch[0] = "0x0007" if text.strip() == "y" else "0x0000"

    found = add_directory(sys, "kernel/mm/lru_gen")
    found.entries["enabled"] = Leaf(lambda: f"{switch[0]}\n", enable)
    locked = machine.options.lockdown
    add_directory(sys, "kernel/debug").entries["lru_gen"] = Leaf(
        made.text, None if locked else made.write, open_errno=errno.EPERM
    )
