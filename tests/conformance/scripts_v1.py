"""What the v1 hierarchies must answer."""

from __future__ import annotations

from tests.conformance.script import CPU_LISTS, LIMIT_LINES, NUMBERS, SIZES, each, script

V1 = (
    script(
        "directories",
        "cpu",
        """
        mkdir {cpu}/a
        mkdir {cpu}/a
        mkdir {cpu}/x/y                     # no parent
        mkdir {cpu}/a/b
        mkdir {cpu}/a/cpu.shares            # a file has that name
        mkdir {cpu}/a/cpu.shares/z
        rmdir {cpu}/a                       # has a child
        rmdir {cpu}/a/cpu.shares
        rmdir {cpu}/nosuch
        read {cpu}/a                        # a directory
        read {cpu}/a/nosuch
        write {cpu}/a/nosuch = 1
        write {cpu}/a/cpu.stat = 1          # read only
        read {cpu}/a/cpu.stat
        exists {cpu}/a/cpu.shares
        exists {cpu}/a/cpu.weight
        spawn p
        write {cpu}/a/b/cgroup.procs = {p}
        rmdir {cpu}/a/b                     # has a task
        kill p
        rmdir {cpu}/a/b
        rmdir {cpu}/a
        """,
    ),
    script(
        "renamed",
        "cpu",
        """
        mkdir {cpu}/a
        mkdir {cpu}/a/b
        mkdir {cpu}/c
        write {cpu}/a/cpu.shares = 77
        remember {cpu}/a
        hold {cpu}/a/cpu.shares = w
        rename {cpu}/a = c                  # that name is taken
        rename {cpu}/a = {cpu}/c/a          # another parent
        rename {cpu}/a = z
        is_it {cpu}/z
        read {cpu}/z/cpu.shares
        read_held {cpu}/a/cpu.shares
        write_held {cpu}/a/cpu.shares = 78
        read {cpu}/z/cpu.shares
        exists {cpu}/z/b
        read {cpu}/a/cpu.shares
        mkdir {cpu}/a
        is_it {cpu}/a
        rename {cpu}/nosuch = y
        rmdir {cpu}/a
        rmdir {cpu}/z/b
        rmdir {cpu}/z
        rmdir {cpu}/c
        """,
    ),
    script(
        "removed while open",
        "cpuacct",
        """
        mkdir {cpuacct}/a
        hold {cpuacct}/a/cpuacct.usage = w
        read_held {cpuacct}/a/cpuacct.usage
        rmdir {cpuacct}/a
        read_held {cpuacct}/a/cpuacct.usage
        write_held {cpuacct}/a/cpuacct.usage = 0
        mkdir {cpuacct}/a
        read_held {cpuacct}/a/cpuacct.usage  # a new group, the old descriptor
        write_held {cpuacct}/a/cpuacct.usage = 0
        hold {cpuacct}/a/cpuacct.stat
        write_held {cpuacct}/a/cpuacct.stat = 0
        rmdir {cpuacct}/a
        """,
    ),
    script(
        "moving tasks",
        "cpu",
        """
        mkdir {cpu}/a
        mkdir {cpu}/b
        spawn p
        spawn q
        write {cpu}/a/cgroup.procs = {p}
        write {cpu}/a/tasks = {q}
        read {cpu}/a/cgroup.procs
        read {cpu}/a/tasks
        write {cpu}/b/cgroup.procs =  {q}\\n
        read {cpu}/a/cgroup.procs
        read {cpu}/b/tasks
        write {cpu}/a/cgroup.procs = 99999999
        write {cpu}/a/cgroup.procs = 99999999999
        write {cpu}/a/cgroup.procs = abc
        write {cpu}/a/cgroup.procs = -1
        write {cpu}/a/cgroup.procs = ''
        write {cpu}/a/cgroup.procs = \\n
        write {cpu}/a/tasks = 99999999
        kill p
        read {cpu}/a/cgroup.procs
        rmdir {cpu}/a
        rmdir {cpu}/b
        kill q
        rmdir {cpu}/b
        """,
    ),
    each("cpu.shares", "cpu", "cpu.shares", [*NUMBERS, "262144", "262145"]),
    each("cpu.idle", "cpu", "cpu.idle", ["0", "1", "1", "2", "-1", "abc", "", "0", "1\n"]),
    script(
        "idle and shares",
        "cpu",
        """
        mkdir {cpu}/a
        write {cpu}/a/cpu.shares = 777
        write {cpu}/a/cpu.idle = 1
        read {cpu}/a/cpu.shares
        write {cpu}/a/cpu.shares = 500
        write {cpu}/a/cpu.idle = 0
        read {cpu}/a/cpu.shares
        write {cpu}/a/cpu.shares = 500
        write {cpu}/a/cpu.idle = 0
        read {cpu}/a/cpu.shares
        rmdir {cpu}/a
        """,
    ),
    each(
        "quota",
        "cpu",
        "cpu.cfs_quota_us",
        [
            *NUMBERS,
            "-2",
            "999",
            "1000",
            "50000",
            "9223372036854775807",
            "18446744073709551",
            "17592186044415",
            "17592186044416",
            "-99999999999999999999",
            "max",
        ],
    ),
    each(
        "period",
        "cpu",
        "cpu.cfs_period_us",
        [*NUMBERS, "999", "1000", "1000000", "1000001", "18446744073709551"],
    ),
    script(
        "burst",
        "cpu",
        """
        mkdir {cpu}/a
        write {cpu}/a/cpu.cfs_burst_us = 99999999    # no quota, so no bound
        write {cpu}/a/cpu.cfs_quota_us = 50000
        write {cpu}/a/cpu.cfs_burst_us = 0
        write {cpu}/a/cpu.cfs_quota_us = 50000
        write {cpu}/a/cpu.cfs_burst_us = 1
        write {cpu}/a/cpu.cfs_burst_us = 50000
        write {cpu}/a/cpu.cfs_burst_us = 50001       # above the quota
        write {cpu}/a/cpu.cfs_burst_us = -1
        write {cpu}/a/cpu.cfs_quota_us = 40000       # below the burst
        write {cpu}/a/cpu.cfs_quota_us = -1
        read {cpu}/a/cpu.cfs_burst_us
        write {cpu}/a/cpu.cfs_burst_us = 10000
        write {cpu}/a/cpu.cfs_quota_us = 40000
        read {cpu}/a/cpu.stat
        rmdir {cpu}/a
        """,
    ),
    script(
        "quota and hierarchy",
        "cpu",
        """
        mkdir {cpu}/a
        mkdir {cpu}/a/b
        mkdir {cpu}/a/b/c
        write {cpu}/a/cpu.cfs_quota_us = 50000
        write {cpu}/a/b/cpu.cfs_quota_us = 60000
        write {cpu}/a/b/c/cpu.cfs_quota_us = 60000   # the parent has none, the one above has
        write {cpu}/a/b/c/cpu.cfs_quota_us = 50000
        write {cpu}/a/b/cpu.cfs_quota_us = 30000     # below its child
        write {cpu}/a/b/c/cpu.cfs_quota_us = 30000
        write {cpu}/a/b/cpu.cfs_quota_us = 30000
        write {cpu}/a/b/cpu.cfs_period_us = 50000    # ratio above the parent's
        write {cpu}/a/cpu.cfs_quota_us = 20000
        write {cpu}/a/cpu.cfs_quota_us = -1
        write {cpu}/a/b/c/cpu.cfs_period_us = 200000
        write {cpu}/a/b/c/cpu.cfs_quota_us = 60000
        read {cpu}/a/b/c/cpu.cfs_quota_us
        rmdir {cpu}/a/b/c
        rmdir {cpu}/a/b
        rmdir {cpu}/a
        """,
    ),
    each("cpuset.cpus", "cpuset", "cpuset.cpus", CPU_LISTS, "cpuset.effective_cpus"),
    each("cpuset.mems", "cpuset", "cpuset.mems", ["0", "1", "0-1", "abc", "100000", "", "\n"]),
    script(
        "cpuset and tasks",
        "cpuset",
        """
        spawn p
        mkdir {cpuset}/a
        read {cpuset}/a/cpuset.cpus
        write {cpuset}/a/cgroup.procs = {p}          # neither CPUs nor memory nodes
        write {cpuset}/a/cpuset.cpus = 0-1
        write {cpuset}/a/cgroup.procs = {p}          # no memory nodes
        write {cpuset}/a/cpuset.mems = 0
        write {cpuset}/a/cgroup.procs = {p}
        write {cpuset}/a/cpuset.cpus = ''            # zero bytes: nothing is written
        write {cpuset}/a/cpuset.cpus = \\n
        write {cpuset}/a/cpuset.mems = \\n
        write {cpuset}/a/cpuset.cpus = 1
        read {cpuset}/a/cpuset.effective_cpus
        rmdir {cpuset}/a
        kill p
        write {cpuset}/a/cpuset.cpus = \\n
        read {cpuset}/a/cpuset.cpus
        rmdir {cpuset}/a
        """,
    ),
    script(
        "cpuset and hierarchy",
        "cpuset",
        """
        mkdir {cpuset}/a
        mkdir {cpuset}/a/b
        write {cpuset}/a/b/cpuset.cpus = 0           # outside the (empty) parent
        write {cpuset}/a/b/cpuset.cpus = 5           # not there at all
        write {cpuset}/a/cpuset.cpus = 0
        write {cpuset}/a/b/cpuset.cpus = 0-1
        write {cpuset}/a/b/cpuset.cpus = 0
        write {cpuset}/a/cpuset.cpus = 0-1
        write {cpuset}/a/cpuset.cpus = 1             # without the child's CPU
        write {cpuset}/a/cpuset.cpus = \\n
        write {cpuset}/a/b/cpuset.mems = 0
        write {cpuset}/a/cpuset.mems = 0
        write {cpuset}/a/b/cpuset.mems = 0
        write {cpuset}/a/cpuset.mems = \\n
        write {cpuset}/a/cgroup.clone_children = 1
        mkdir {cpuset}/a/c
        read {cpuset}/a/c/cpuset.cpus
        read {cpuset}/a/c/cpuset.mems
        read {cpuset}/a/c/cgroup.clone_children
        write {cpuset}/a/c/notify_on_release = 2
        read {cpuset}/a/c/notify_on_release
        rmdir {cpuset}/a/c
        rmdir {cpuset}/a/b
        rmdir {cpuset}/a
        """,
    ),
    each("memory limit", "memory", "memory.limit_in_bytes", SIZES),
    each("soft limit", "memory", "memory.soft_limit_in_bytes", ["1M", "-1", "abc", "5000"]),
    each("swappiness", "memory", "memory.swappiness", ["0", "101", "200", "201", "-1", "x"]),
    script(
        "memory in use",
        "memory",
        """
        mkdir {memory}/a
        write {memory}/a/memory.usage_in_bytes = 0
        write {memory}/a/memory.max_usage_in_bytes = 0
        write {memory}/a/memory.failcnt = 0
        write {memory}/a/memory.use_hierarchy = 1
        write {memory}/a/memory.use_hierarchy = 0
        write {memory}/a/memory.stat = 0
        read {memory}/a/memory.force_empty
        write {memory}/a/memory.force_empty = 0
        spawn_memory p = {memory}/a
        write {memory}/a/memory.limit_in_bytes = 10M
        write {memory}/a/memory.limit_in_bytes = 0
        write {memory}/a/memory.limit_in_bytes = 64M
        write {memory}/a/memory.limit_in_bytes = 10M
        read {memory}/a/memory.limit_in_bytes
        write {memory}/a/memory.force_empty = 0
        kill p
        rmdir {memory}/a
        """,
    ),
    each(
        "bps limits",
        "blkio",
        "blkio.throttle.read_bps_device",
        LIMIT_LINES,
    ),
    each("iops limits", "blkio", "blkio.throttle.write_iops_device", LIMIT_LINES),
    each(
        "pids.max",
        "pids",
        "pids.max",
        ["5", "max", "-1", "0", "abc", "4194304", "4194305", "99999999999", "", " 7 ", "\n"],
    ),
    script(
        "pids move past the limit",
        "pids",
        """
        mkdir {pids}/a
        spawn p
        write {pids}/a/pids.max = 0
        write {pids}/a/cgroup.procs = {p}
        read {pids}/a/pids.current
        kill p
        read {pids}/a/pids.current
        rmdir {pids}/a
        """,
    ),
    script(
        "cpuacct",
        "cpuacct",
        """
        mkdir {cpuacct}/a
        write {cpuacct}/a/cpuacct.usage = 0
        write {cpuacct}/a/cpuacct.usage = 5
        write {cpuacct}/a/cpuacct.stat = 0
        read {cpuacct}/a/cpuacct.usage
        read {cpuacct}/a/cpuacct.stat
        read {cpuacct}/a/cpuacct.usage_percpu
        read {cpuacct}/a/cpuacct.usage_all
        rmdir {cpuacct}/a
        """,
    ),
    script(
        "freezer",
        "freezer",
        """
        mkdir {freezer}/a
        read {freezer}/a/freezer.state
        write {freezer}/a/freezer.state = FROZEN
        read {freezer}/a/freezer.state
        mkdir {freezer}/a/b
        read {freezer}/a/b/freezer.state
        read {freezer}/a/b/freezer.parent_freezing
        write {freezer}/a/freezer.state = frozen
        write {freezer}/a/freezer.state = THAWED\\n
        read {freezer}/a/b/freezer.state
        rmdir {freezer}/a/b
        rmdir {freezer}/a
        """,
    ),
)
