"""What the unified hierarchy must answer: without any controller, then with each."""

from __future__ import annotations

from tests.conformance.script import CPU_LISTS, NUMBERS, SIZES, each, script

_PRESSURE = [
    "some 100000 2000000", "some 100000 2000000 ", "some 100000 12000000",
    "some 100000 10000000", "some 0 2000000", "some 3000000 2000000", "some 2000000 2000000",
    "full 100000 2000000", "some 100 ", "foo 1 2", "", "x", "some 100000 2000000 junk",
    "some 100000 0",
]  # fmt: skip

UNIFIED = (
    script(
        "v2 groups keep their names",
        "unified",
        """
        mkdir {unified}/a
        rename {unified}/a = b
        exists {unified}/a
        rename {unified}/nosuch = b
        rmdir {unified}/a
        """,
    ),
    script(
        "v2 tree",
        "unified",
        """
        mkdir {unified}/a
        mkdir {unified}/a/b
        read {unified}/a/cgroup.events
        read {unified}/a/cgroup.type
        read {unified}/a/cgroup.subtree_control
        read {unified}/a/cgroup.stat = nr_descendants
        spawn p
        write {unified}/a/b/cgroup.procs = {p}
        read {unified}/a/cgroup.events
        read {unified}/a/b/cgroup.procs
        read {unified}/a/cgroup.procs
        write {unified}/a/b/cgroup.threads = {p}
        write {unified}/a/cgroup.threads = {p}
        write {unified}/a/b/cgroup.type = domain
        write {unified}/a/b/cgroup.type = x
        write {unified}/a/cgroup.procs = 99999999
        write {unified}/a/cgroup.controllers = x
        write {unified}/a/cgroup.subtree_control = +nosuch
        write {unified}/a/cgroup.subtree_control = hugetlb
        write {unified}/a/cgroup.subtree_control = -hugetlb
        write {unified}/a/cgroup.subtree_control = +hugetlb   # not passed on by the parent
        write {unified}/a/cgroup.subtree_control = +net_cls
        write {unified}/a/cgroup.subtree_control = ''
        rmdir {unified}/a/b
        kill p
        rmdir {unified}/a/b
        rmdir {unified}/a
        """,
    ),
    script(
        "freeze and kill",
        "unified",
        """
        mkdir {unified}/a
        mkdir {unified}/a/b
        write {unified}/a/cgroup.freeze = 2
        write {unified}/a/cgroup.freeze = abc
        write {unified}/a/cgroup.freeze = -1
        write {unified}/a/cgroup.freeze = 1
        read {unified}/a/cgroup.freeze
        read {unified}/a/b/cgroup.freeze
        read {unified}/a/b/cgroup.events
        write {unified}/a/cgroup.freeze = 0
        read {unified}/a/b/cgroup.events
        read {unified}/a/cgroup.kill
        write {unified}/a/cgroup.kill = 0
        write {unified}/a/cgroup.kill = 2
        write {unified}/a/cgroup.kill = abc
        write {unified}/a/cgroup.kill = 1             # empty: nothing to do
        rmdir {unified}/a/b
        rmdir {unified}/a
        """,
    ),
    script(
        "limits of the tree",
        "unified",
        """
        mkdir {unified}/a
        mkdir {unified}/a/b
        write {unified}/a/cgroup.max.depth = -1
        write {unified}/a/cgroup.max.depth = abc
        write {unified}/a/cgroup.max.depth = 1
        read {unified}/a/cgroup.max.depth
        mkdir {unified}/a/b/c
        write {unified}/a/cgroup.max.depth = max
        mkdir {unified}/a/b/c
        write {unified}/a/cgroup.max.descendants = 2
        mkdir {unified}/a/d
        rmdir {unified}/a/b/c
        mkdir {unified}/a/d
        rmdir {unified}/a/d
        rmdir {unified}/a/b
        rmdir {unified}/a
        """,
    ),
    script(
        "hidden pressure",
        "unified",
        """
        mkdir {unified}/a
        exists {unified}/a/cpu.pressure
        write {unified}/a/cgroup.pressure = 0
        exists {unified}/a/cpu.pressure
        read {unified}/a/cpu.pressure
        write {unified}/a/cgroup.pressure = 2
        write {unified}/a/cgroup.pressure = 1
        read {unified}/a/cpu.pressure
        read {unified}/a/cpu.stat
        rmdir {unified}/a
        """,
    ),
    each("pressure triggers", "unified", "memory.pressure", _PRESSURE),
)

V2 = (
    each("cpu.weight", "v2cpu", "cpu.weight", [*NUMBERS, "10000", "10001"]),
    each(
        "cpu.max",
        "v2cpu",
        "cpu.max",
        [
            "50000",
            "50000 200000",
            "max",
            "max 100000",
            "-1",
            "0",
            "999",
            "1000",
            "abc",
            "",
            "\n",
            "50000 999",
            "50000 1000001",
            "20000 abc",
            "17592186044415",
            "17592186044416",
            "max max",
        ],
    ),
    script(
        "v2 burst and idle",
        "v2cpu",
        """
        mkdir {v2cpu}/a
        write {v2cpu}/a/cpu.max = 50000 100000
        write {v2cpu}/a/cpu.max.burst = 50001
        write {v2cpu}/a/cpu.max.burst = 50000
        write {v2cpu}/a/cpu.max = 40000
        write {v2cpu}/a/cpu.max.burst = 0
        write {v2cpu}/a/cpu.max = 40000
        read {v2cpu}/a/cpu.max
        write {v2cpu}/a/cpu.weight = 50
        write {v2cpu}/a/cpu.idle = 2
        write {v2cpu}/a/cpu.idle = 1
        write {v2cpu}/a/cpu.weight = 50
        read {v2cpu}/a/cpu.weight
        write {v2cpu}/a/cpu.idle = 0
        read {v2cpu}/a/cpu.weight
        read {v2cpu}/a/cpu.stat = nr_throttled
        mkdir {v2cpu}/a/b
        exists {v2cpu}/a/b/cpu.max
        write {v2cpu}/a/cgroup.subtree_control = +cpu
        exists {v2cpu}/a/b/cpu.max
        write {v2cpu}/a/b/cpu.max = 90000             # above the parent: v2 takes it
        write {v2cpu}/a/cgroup.subtree_control = -cpu
        exists {v2cpu}/a/b/cpu.max
        read {v2cpu}/a/b/cpu.stat = usage_usec
        rmdir {v2cpu}/a/b
        rmdir {v2cpu}/a
        """,
    ),
    each("v2 cpuset.cpus", "v2cpuset", "cpuset.cpus", CPU_LISTS, "cpuset.cpus.effective"),
    script(
        "v2 cpuset follows",
        "v2cpuset",
        """
        mkdir {v2cpuset}/a
        write {v2cpuset}/a/cgroup.subtree_control = +cpuset
        mkdir {v2cpuset}/a/b
        write {v2cpuset}/a/b/cpuset.cpus = 0-1
        write {v2cpuset}/a/cpuset.cpus = 0
        read {v2cpuset}/a/b/cpuset.cpus
        read {v2cpuset}/a/b/cpuset.cpus.effective
        write {v2cpuset}/a/b/cpuset.cpus = 1          # outside the parent
        read {v2cpuset}/a/b/cpuset.cpus.effective
        spawn p
        write {v2cpuset}/a/b/cgroup.procs = {p}
        write {v2cpuset}/a/b/cpuset.cpus = \\n
        read {v2cpuset}/a/b/cpuset.cpus
        kill p
        rmdir {v2cpuset}/a/b
        rmdir {v2cpuset}/a
        """,
    ),
    each("memory.max", "v2memory", "memory.max", SIZES),
    each("memory.high", "v2memory", "memory.high", SIZES),
    each("memory.min", "v2memory", "memory.min", SIZES),
    each("memory.low", "v2memory", "memory.low", SIZES),
    each("memory.oom.group", "v2memory", "memory.oom.group", ["0", "1", "2", "-1", "x", "1\n"]),
    each(
        "io.max",
        "v2io",
        "io.max",
        [
            "{disk} rbps=1000",
            "{disk} riops=7 wiops=8",
            "{disk} rbps=max",
            "{disk} rbps=0",
            "{disk} foo=1",
            "{disk} rbps=1",
            "{disk} ",
            "{disk}",
            "999:0 rbps=1",
            "abc",
            "",
            "{disk} riops=max wiops=max",
            "{disk2} wbps=55",
            "{disk} rbps=x",
        ],
    ),
    each(
        "io.weight",
        "v2io",
        "io.weight",
        ["1", "10000", "0", "10001", "default 50", "x", "{disk} 7", "{disk} default"],
    ),
    each("v2 pids.max", "v2pids", "pids.max", ["5", "max", "-1", "0", "abc", "4194305"]),
    script(
        "no internal processes",
        "v2memory v2cpu",
        """
        mkdir {v2memory}/a
        mkdir {v2memory}/a/b
        spawn p
        write {v2memory}/a/cgroup.procs = {p}
        write {v2memory}/a/cgroup.subtree_control = +memory
        write {v2memory}/a/b/cgroup.procs = {p}
        write {v2memory}/a/cgroup.subtree_control = +memory
        write {v2memory}/a/cgroup.procs = {p}
        write {v2memory}/a/b/cgroup.subtree_control = +memory
        mkdir {v2memory}/a/c
        write {v2memory}/a/c/cgroup.subtree_control = +memory
        write {v2memory}/a/cgroup.subtree_control = -memory   # a child passes it on
        write {v2memory}/a/c/cgroup.subtree_control = -memory
        write {v2memory}/a/cgroup.subtree_control = -memory
        kill p
        rmdir {v2memory}/a/c
        rmdir {v2memory}/a/b
        rmdir {v2memory}/a
        """,
    ),
)
