/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * How long tasks of watched cgroups are interrupted, by devices (hard interrupts) and by the work
 * that these left for later (softirqs). A busy network makes 100,000 of these a second, so these
 * programs are attached for a moment only, now and then.
 */
#include "core.h"
#include "current.h"

char LICENSE[] SEC("license") = "GPL";

const volatile struct {
	u32 by_cpu_controller;
} options;

enum kind { SOFTIRQ, HARDIRQ, KINDS };

/* Since when this CPU is at it; 0: it is not. */
struct begun {
	u64 since_ns[KINDS];
};
struct {
	__uint(type, MAP_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct begun);
} begun SEC(".maps");

/* Of watched cgroups; who reads them makes and removes the entries. */
struct group {
	u64 ns[KINDS];
};
struct {
	__uint(type, MAP_PERCPU_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u64);
	__type(value, struct group);
} groups SEC(".maps");

static __always_inline u64 current_cgroup(void)
{
	u64 controller = bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id);

	if (!options.by_cpu_controller)
		return current_unified();
	return BPF_CORE_READ(current_state(controller), cgroup, kn, id);
}

static __always_inline void begin(u32 kind)
{
	u32 zero = 0;
	struct begun *cpu = bpf_map_lookup_elem(&begun, &zero);

	if (cpu)
		cpu->since_ns[kind] = bpf_ktime_get_ns();
}

static __always_inline void end(u32 kind)
{
	u32 zero = 0;
	struct begun *cpu = bpf_map_lookup_elem(&begun, &zero);
	struct group *group;
	u64 ns, cgroup;

	if (!cpu || !cpu->since_ns[kind])
		return;
	ns = bpf_ktime_get_ns() - cpu->since_ns[kind];
	cpu->since_ns[kind] = 0;
	/* A softirq is interrupted in its turn: its time goes on later. */
	if (kind == HARDIRQ && cpu->since_ns[SOFTIRQ])
		cpu->since_ns[SOFTIRQ] += ns;
	cgroup = current_cgroup();
	group = bpf_map_lookup_elem(&groups, &cgroup);
	if (group)
		group->ns[kind] += ns;
}

SEC("tp_btf/softirq_entry")
int on_softirq_entry(void *arguments)
{
	begin(SOFTIRQ);
	return 0;
}

SEC("tp_btf/softirq_exit")
int on_softirq_exit(void *arguments)
{
	end(SOFTIRQ);
	return 0;
}

SEC("tp_btf/irq_handler_entry")
int on_irq_entry(void *arguments)
{
	begin(HARDIRQ);
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int on_irq_exit(void *arguments)
{
	end(HARDIRQ);
	return 0;
}
