/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * How long the tasks of watched cgroups wait for a CPU, and who ran on it meanwhile.
 *
 * A wait begins when a task wakes up or is put aside while it could go on, and ends when a CPU
 * picks it. Each CPU remembers its last RING stretches of one cgroup running; when a task is
 * picked, its wait is divided among those that overlap it.
 */
#include "core.h"

char LICENSE[] SEC("license") = "GPL";

const volatile struct {
	u32 by_cpu_controller;
	u32 with_matrix;
} options;

/* Culprits that are no cgroup. Ids of cgroups are inode numbers, 1 being a root. */
#define IDLE 0ULL		/* nobody ran: the CPU was slow to wake up */
#define THROTTLED (~0ULL)	/* the task's own quota was used up */
#define OLDER (~0ULL - 1)	/* before what the ring remembers */

#define RING 32
/* Shorter waits are the switch itself. */
#define LEAST_NS 2000

struct stretch {
	u64 end_ns;
	u64 cgroup;
};
struct cpu {
	u64 count;
	struct stretch ring[RING];
};
struct {
	__uint(type, MAP_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

struct wait {
	u64 since_ns;
	u64 throttled;
};
struct {
	__uint(type, MAP_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct wait);
} begun SEC(".maps");

struct {
	__uint(type, MAP_HASH);
	__uint(max_entries, 4096);
	__type(key, u64);
	__type(value, u32);
} watched SEC(".maps");

struct pair {
	u64 victim;
	u64 culprit;
};
struct sum {
	u64 ns;
	u64 count;
};
struct {
	__uint(type, MAP_PERCPU_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct pair);
	__type(value, struct sum);
} waits SEC(".maps");

struct {
	__uint(type, MAP_PERCPU_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u64);
	__type(value, struct distribution);
} delays SEC(".maps");

struct totals {
	u64 lost;	/* waits that found no room in a map */
	u64 others_ns;	/* waits of all victims because of other cgroups */
};
struct {
	__uint(type, MAP_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct totals);
} totals SEC(".maps");

static __always_inline void lose(void)
{
	u32 zero = 0;
	struct totals *all = bpf_map_lookup_elem(&totals, &zero);

	if (all)
		all->lost++;
}

static __always_inline void add_to_others(u64 ns)
{
	u32 zero = 0;
	struct totals *all = bpf_map_lookup_elem(&totals, &zero);

	if (all)
		all->others_ns += ns;
}

static __always_inline bool could_go_on(struct task_struct *task)
{
	if (bpf_core_field_exists(task->__state))
		return task->__state == TASK_RUNNING;
	return BPF_CORE_READ((struct task_struct___before_5_14 *)task, state) == TASK_RUNNING;
}

static __always_inline bool is_throttled(struct task_struct *task)
{
	if (bpf_core_field_exists(task->throttled))
		return task->throttled;
	if (bpf_core_field_exists(task->se.cfs_rq->throttle_count))
		return task->se.cfs_rq && task->se.cfs_rq->throttle_count > 0;
	return false;
}

static __always_inline void begin(struct task_struct *task, u64 cgroup, u64 now)
{
	struct wait *wait;

	if (!bpf_map_lookup_elem(&watched, &cgroup))
		return;
	wait = bpf_task_storage_get(&begun, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!wait)
		return;
	wait->since_ns = now;
	wait->throttled = is_throttled(task);
}

static __always_inline void woken(struct task_struct *task)
{
	begin(task, cgroup_of(task, options.by_cpu_controller), bpf_ktime_get_ns());
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *task)
{
	woken(task);
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(on_wakeup_new, struct task_struct *task)
{
	woken(task);
	return 0;
}

static __always_inline void remember(struct cpu *cpu, u64 cgroup, u64 now)
{
	u64 last = (cpu->count - 1) & (RING - 1), next = cpu->count & (RING - 1);

	if (cpu->count && cpu->ring[last].cgroup == cgroup) {
		cpu->ring[last].end_ns = now;
		return;
	}
	cpu->ring[next].end_ns = now;
	cpu->ring[next].cgroup = cgroup;
	cpu->count++;
}

/* Not static: so the verifier looks at it once, not once for each way through the loop below. */
__attribute__((noinline)) int blame(u64 victim, u64 culprit, u64 ns)
{
	struct pair pair = { victim, culprit };
	struct sum *sum = bpf_map_lookup_elem(&waits, &pair), none = {};

	if (!sum) {
		/* Refused also where another CPU was first. */
		bpf_map_update_elem(&waits, &pair, &none, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&waits, &pair);
	}
	if (!sum) {
		lose();
		return 0;
	}
	sum->ns += ns;
	sum->count++;
	return 0;
}

static __always_inline void divide(struct cpu *cpu, u64 victim, u64 since, u64 now)
{
	u64 to = now, others_ns = 0;

#pragma clang loop unroll(disable)
	for (u32 back = 1; back < RING; back++) {
		u64 this = (cpu->count - back) & (RING - 1);
		u64 before = (cpu->count - back - 1) & (RING - 1);
		u64 from;

		if (back > cpu->count)
			break;
		from = cpu->count > back ? cpu->ring[before].end_ns : 0;
		if (from < since)
			from = since;
		if (to > from) {
			u64 culprit = cpu->ring[this].cgroup;

			blame(victim, culprit, to - from);
			if (culprit != victim && culprit != IDLE)
				others_ns += to - from;
		}
		to = from;
		if (from <= since)
			break;
	}
	if (to > since)
		blame(victim, OLDER, to - since);
	if (others_ns)
		add_to_others(others_ns);
}

static __always_inline void note_delay(u64 victim, u64 ns)
{
	struct distribution *delay = bpf_map_lookup_elem(&delays, &victim), none = {};

	if (!delay) {
		bpf_map_update_elem(&delays, &victim, &none, BPF_NOEXIST);
		delay = bpf_map_lookup_elem(&delays, &victim);
	}
	if (delay)
		observe(delay, ns);
	else
		lose();
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	u64 now = bpf_ktime_get_ns(), victim, since;
	struct cpu *cpu;
	struct wait *wait;
	u32 zero = 0;

	cpu = bpf_map_lookup_elem(&cpus, &zero);
	if (!cpu)
		return 0;
	if (prev->pid) {
		u64 cgroup = cgroup_of(prev, options.by_cpu_controller);

		if (options.with_matrix)
			remember(cpu, cgroup, now);
		if (could_go_on(prev))
			begin(prev, cgroup, now);
	} else if (options.with_matrix) {
		remember(cpu, IDLE, now);
	}
	if (!next->pid)
		return 0;
	victim = cgroup_of(next, options.by_cpu_controller);
	if (!bpf_map_lookup_elem(&watched, &victim))
		return 0;
	wait = bpf_task_storage_get(&begun, next, 0, 0);
	if (!wait || !wait->since_ns)
		return 0;
	since = wait->since_ns;
	wait->since_ns = 0;
	if (now < since)
		return 0;
	note_delay(victim, now - since);
	if (!options.with_matrix)
		return 0;
	if (wait->throttled)
		blame(victim, THROTTLED, now - since);
	else if (now - since >= LEAST_NS)
		divide(cpu, victim, since, now);
	return 0;
}
