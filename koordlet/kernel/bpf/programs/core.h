/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The types that our programs use, in place of a generated vmlinux.h of 3 MB. Of each kernel
 * structure only the fields that are read: the loader relocates them by the BTF of the running
 * kernel (Linux Documentation/bpf/llvm_reloc.rst).
 */
#ifndef KOORDLET_CORE_H
#define KOORDLET_CORE_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u8 u8;
typedef __u32 u32;
typedef __u64 u64;
typedef __s64 s64;
/* bpf_helper_defs.h names these. */
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u32 __wsum;
typedef _Bool bool;

#define NULL ((void *)0)
#define false 0
#define true 1

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

/* linux/bpf.h; macros of the same names would hide the enumerators of its BTF, so these differ. */
enum {
	MAP_HASH = 1,
	MAP_ARRAY = 2,
	MAP_PERF_EVENT_ARRAY = 4,
	MAP_PERCPU_HASH = 5,
	MAP_PERCPU_ARRAY = 6,
	MAP_TASK_STORAGE = 29,
};
enum { BPF_ANY = 0, BPF_NOEXIST = 1, BPF_LOCAL_STORAGE_GET_F_CREATE = 1, BPF_F_NO_PREALLOC = 1 };

/* Numbers differ by configuration of the kernel: read them by bpf_core_enum_value. */
enum cgroup_subsys_id { cpuset_cgrp_id, cpu_cgrp_id };

#define TASK_RUNNING 0
#define TASK_WAKING 0x200
#define PF_KTHREAD 0x00200000

/* Culprit that is no cgroup: the kernel's own threads, and what they write. */
#define KERNEL (~0ULL - 2)
#define ROOT 1ULL

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct kernfs_node {
	u64 id;
};
struct cgroup {
	struct kernfs_node *kn;
};
struct cgroup_subsys_state {
	struct cgroup *cgroup;
};
struct css_set {
	struct cgroup_subsys_state *subsys[16];
	struct cgroup *dfl_cgrp;
};
struct cfs_rq {
	int throttle_count;
};
struct sched_entity {
	struct cfs_rq *cfs_rq;
};
struct task_struct {
	unsigned int __state; /* since 5.14 */
	unsigned int flags;
	unsigned in_iowait : 1;
	int pid;
	struct css_set *cgroups;
	struct sched_entity se;
	bool throttled; /* since 6.18: tasks are throttled, not groups */
};
struct task_struct___before_5_14 {
	long state;
};
#pragma clang attribute pop

static __always_inline u32 state_of(struct task_struct *task)
{
	if (bpf_core_field_exists(task->__state))
		return task->__state;
	return BPF_CORE_READ((struct task_struct___before_5_14 *)task, state);
}

static __always_inline bool could_go_on(struct task_struct *task)
{
	return state_of(task) == TASK_RUNNING;
}

/* And nobody is about to wake it. */
static __always_inline bool sleeps(struct task_struct *task)
{
	u32 state = state_of(task);

	return state != TASK_RUNNING && !(state & TASK_WAKING);
}

/* Counters of one kind of wait: count, sum, longest, and how many by power of two of 1,024 ns:
 * slot 0 below that, slot k from 2^(k-1) on. */
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

static __always_inline void observe(struct distribution *d, u64 ns)
{
	d->count++;
	d->ns += ns;
	if (ns > d->longest_ns)
		d->longest_ns = ns;
	d->slots[slot_of(ns)]++;
}

/* Id of a task's cgroup: the inode of its directory, in the hierarchy of the CPU controller or, if
 * cgroups have none of their own, in the unified one. Not by way of sched_task_group: an autogroup
 * has no cgroup. */
static __always_inline u64 cgroup_of(struct task_struct *task, bool by_cpu_controller)
{
	if (by_cpu_controller)
		return task->cgroups
			->subsys[bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id)]
			->cgroup->kn->id;
	return task->cgroups->dfl_cgrp->kn->id;
}

#endif
