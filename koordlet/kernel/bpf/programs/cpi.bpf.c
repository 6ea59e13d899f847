/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Cycles and instructions of watched cgroups, from one pair of counters on each CPU. The pair is
 * read where the cgroup on the CPU changes, and what it counted since the last reading is the
 * cgroup's that ran.
 *
 * Watched are the cgroups that have a row in `sums`. User space makes the rows before it attaches
 * the program, and calls `settle` on each CPU at both ends of a window: for what runs there and has
 * not been switched.
 */
#include "core.h"

char LICENSE[] SEC("license") = "GPL";

const volatile struct {
	u32 by_cpu_controller;
	u32 unused;
} options;

/* linux/bpf.h, struct bpf_perf_event_value */
struct reading {
	u64 count;
	u64 enabled_ns;
	u64 running_ns;
};

struct {
	__uint(type, MAP_PERF_EVENT_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} cycles SEC(".maps"), instructions SEC(".maps");

/* `cgroup`: whose stretch the readings began, 0 where it is not watched. */
struct cpu {
	u64 cgroup;
	struct reading cycles;
	struct reading instructions;
};
struct {
	__uint(type, MAP_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

struct sum {
	u64 cycles;
	u64 instructions;
	u64 enabled_ns;
	u64 running_ns;
};
struct {
	__uint(type, MAP_PERCPU_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u64);
	__type(value, struct sum);
} sums SEC(".maps");

#define THIS_CPU 0xffffffffULL

static __always_inline void end_stretch(struct sum *sum, struct cpu *cpu, struct reading *cycles,
					struct reading *instructions)
{
	sum->cycles += cycles->count - cpu->cycles.count;
	sum->instructions += instructions->count - cpu->instructions.count;
	/* The pair is one group: both count, or neither. */
	sum->enabled_ns += cycles->enabled_ns - cpu->cycles.enabled_ns;
	sum->running_ns += cycles->running_ns - cpu->cycles.running_ns;
}

static __always_inline void change(u64 from, u64 to)
{
	struct reading now_cycles = {}, now_instructions = {};
	struct sum *ending = NULL, *beginning = NULL;
	struct cpu *cpu;
	u32 zero = 0;

	cpu = bpf_map_lookup_elem(&cpus, &zero);
	if (!cpu)
		return;
	if (from && cpu->cgroup == from)
		ending = bpf_map_lookup_elem(&sums, &from);
	if (to)
		beginning = bpf_map_lookup_elem(&sums, &to);
	cpu->cgroup = 0;
	if (!ending && !beginning)
		return;
	if (bpf_perf_event_read_value(&cycles, THIS_CPU, (void *)&now_cycles, sizeof(now_cycles)) ||
	    bpf_perf_event_read_value(&instructions, THIS_CPU, (void *)&now_instructions,
				      sizeof(now_instructions)))
		return;
	if (ending)
		end_stretch(ending, cpu, &now_cycles, &now_instructions);
	if (!beginning)
		return;
	cpu->cgroup = to;
	cpu->cycles = now_cycles;
	cpu->instructions = now_instructions;
}

static __always_inline u64 watched_id(struct task_struct *task)
{
	return task->pid ? cgroup_of(task, options.by_cpu_controller) : 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_change, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	u64 from = watched_id(prev), to = watched_id(next);

	if (from != to)
		change(from, to);
	return 0;
}

/* Never attached: user space runs it on one CPU after the other. */
SEC("raw_tp/settle")
int settle(void *unused)
{
	u64 cgroup = watched_id(bpf_get_current_task_btf());

	change(cgroup, cgroup);
	return 0;
}
