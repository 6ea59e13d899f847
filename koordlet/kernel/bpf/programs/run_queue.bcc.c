/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * How long the tasks of watched cgroups wait for a CPU, for kernels without BTF: compiled on the
 * machine by BCC, with the kernel's own headers (bcc_child.py). The part of run_queue.bpf.c that
 * needs no more than that; who ran meanwhile is not known.
 *
 * BY_CPU_CONTROLLER: 1 where cgroups have a controller `cpu` of their own.
 */
#include <linux/version.h>
#include <linux/sched.h>
#include <linux/cgroup-defs.h>
#include <linux/kernfs.h>

/* As in core.h, whose types are not those of the headers; a test compares the two. */
#define SLOTS 27
struct distribution {
	u64 count;
	u64 ns;
	u64 longest_ns;
	u64 slots[SLOTS];
};

static __always_inline u32 slot_of(u64 ns)
{
	u64 us = ns >> 10;
	u32 slot = 0;

	if (us >> 16) { slot += 16; us >>= 16; }
	if (us >> 8) { slot += 8; us >>= 8; }
	if (us >> 4) { slot += 4; us >>= 4; }
	if (us >> 2) { slot += 2; us >>= 2; }
	if (us >> 1) { slot += 1; us >>= 1; }
	if (!us)
		return 0;
	return slot + 1 < SLOTS ? slot + 1 : SLOTS - 1;
}

/* Ids of watched cgroups and their places in `delays`, filled from outside. */
BPF_HASH(watched, u64, u64, 1024);
BPF_PERCPU_ARRAY(delays, struct distribution, 1024);
/* When the wait of a task began, by its pid. What is never picked again falls out. */
BPF_TABLE("lru_hash", u32, u64, begun, 16384);

/* Every field by a helper of its own: BCC would see to it, but not through all these pointers. */
#define FIELD(from, field)                                                       \
	({                                                                       \
		typeof((from)->field) value = 0;                                 \
		bpf_probe_read_kernel(&value, sizeof(value), &(from)->field);    \
		value;                                                           \
	})
#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 5, 0)
#define bpf_probe_read_kernel bpf_probe_read
#endif

static __always_inline u64 cgroup_of(struct task_struct *task)
{
	struct css_set *set = FIELD(task, cgroups);
	struct cgroup *cgroup;
	struct kernfs_node *node;

#if BY_CPU_CONTROLLER
	struct cgroup_subsys_state *state = FIELD(set, subsys[cpu_cgrp_id]);

	cgroup = FIELD(state, cgroup);
#else
	cgroup = FIELD(set, dfl_cgrp);
#endif
	node = FIELD(cgroup, kn);
#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 5, 0)
	return FIELD(node, id.ino);
#else
	return FIELD(node, id);
#endif
}

static __always_inline bool could_go_on(struct task_struct *task)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 14, 0)
	return FIELD(task, state) == TASK_RUNNING;
#else
	return FIELD(task, __state) == TASK_RUNNING;
#endif
}

static __always_inline void begin(struct task_struct *task, u64 now)
{
	u64 cgroup = cgroup_of(task);
	u32 pid;

	if (!watched.lookup(&cgroup))
		return;
	pid = FIELD(task, pid);
	begun.update(&pid, &now);
}

int on_wakeup(struct bpf_raw_tracepoint_args *ctx)
{
	begin((struct task_struct *)ctx->args[0], bpf_ktime_get_ns());
	return 0;
}

int on_wakeup_new(struct bpf_raw_tracepoint_args *ctx)
{
	begin((struct task_struct *)ctx->args[0], bpf_ktime_get_ns());
	return 0;
}

/* preempt, prev, next */
int on_switch(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *prev = (struct task_struct *)ctx->args[1];
	struct task_struct *next = (struct task_struct *)ctx->args[2];
	u64 now = bpf_ktime_get_ns(), cgroup, ns;
	u64 *since, *place;
	struct distribution *delay;
	u32 pid = FIELD(next, pid), index;

	if (FIELD(prev, pid) && could_go_on(prev))
		begin(prev, now);
	if (!pid)
		return 0;
	cgroup = cgroup_of(next);
	place = watched.lookup(&cgroup);
	if (!place)
		return 0;
	since = begun.lookup(&pid);
	if (!since)
		return 0;
	ns = now - *since;
	begun.delete(&pid);
	index = *place;
	delay = delays.lookup(&index);
	if (!delay || (s64)ns < 0)
		return 0;
	delay->count++;
	delay->ns += ns;
	if (ns > delay->longest_ns)
		delay->longest_ns = ns;
	index = slot_of(ns);
	if (index < SLOTS)
		delay->slots[index]++;
	return 0;
}
