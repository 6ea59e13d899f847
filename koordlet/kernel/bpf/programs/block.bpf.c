/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * How long tasks of watched cgroups wait for a disk, whose requests the device completed meanwhile,
 * and how long their own requests take.
 *
 * A task waits while it sleeps with in_iowait set, which is what the kernel itself counts as waiting
 * (io.pressure, delay accounting): from when it is switched out until it is woken. A request that
 * nobody sleeps for, such as reading ahead, makes nobody wait.
 *
 * Each device remembers its last RING stretches of serving one cgroup: a stretch ends with a
 * completion and begins with the completion before or, if the device had nothing to do, when the
 * request was issued. When a task is woken, its wait is divided among the stretches that overlap it.
 * They are those of the device whose completion wakes it: the newest on this CPU, else the newest of
 * its cgroup.
 */
#include "core.h"

char LICENSE[] SEC("license") = "GPL";

const volatile struct {
	u32 with_lock; /* 5.10 has no lock for these programs: two CPUs may lose a stretch there */
} options;

/* Culprits that are no cgroup. Ids of cgroups are inode numbers, 1 being a root. */
#define IDLE 0ULL		/* the device had nothing to do: a scheduler held the request back */
#define OLDER (~0ULL - 1)	/* before what the ring remembers, or no device is known */

#define RING 64
/* A completion so long ago is not what wakes a task now. */
#define JUST_NOW_NS 100000

/* linux/bpf.h, as in core.h; the verifier knows the lock by its name. */
enum { MAP_LRU_HASH = 9 };
struct bpf_spin_lock {
	u32 val;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct blkcg {
	struct cgroup_subsys_state css;
};
struct blkcg_gq {
	struct blkcg *blkcg;
};
struct bio {
	struct blkcg_gq *bi_blkg;
};
struct request_queue;
enum mq_rq_state { MQ_RQ_IDLE };
struct request {
	struct request_queue *q;
	struct bio *bio;
	unsigned int cmd_flags;
	unsigned int __data_len;
	u64 __sector;
	u64 start_time_ns; /* 0 where the device keeps no statistics (queue/iostats) */
	enum mq_rq_state state;
};
#pragma clang attribute pop

/* As in core.h; what follows ___ is no part of a name. */
enum cgroup_subsys_id___io { io_cgrp_id___any };

/* Since 5.11; before, the request was the second argument. A type is compared with all its
 * parameters. */
typedef void (*btf_trace_block_rq_issue)(void *, struct request *);

/* Requests that a device has. It has so many and uses them again and again, so that entries stay:
 * making and removing them would cost more than all the rest.
 *
 * The kernel skips a program that interrupts itself on a CPU. So an entry may be left from a request
 * whose completion nobody saw, and the next one there need not be issued at all: a flush without
 * data only passes through. `which` tells them apart. */
struct issue {
	u64 at_ns; /* 0: it is complete */
	u64 which;
};
struct {
	__uint(type, MAP_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, u64);
	__type(value, struct issue);
} issued SEC(".maps");

struct stretch {
	u64 from_ns;
	u64 end_ns;
	u64 cgroup;
};
struct device {
	struct bpf_spin_lock lock;
	u64 count;
	struct stretch ring[RING];
};
struct {
	__uint(type, MAP_HASH);
	__uint(max_entries, 512);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u64);
	__type(value, struct device);
} devices SEC(".maps");

/* A device that has served nobody: too large for the stack, and with a lock in its type it could
 * not be copied. */
struct new_device {
	u64 zeros[sizeof(struct device) / sizeof(u64)];
};
struct {
	__uint(type, MAP_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct new_device);
} new_device SEC(".maps");

/* As in struct distribution, in a map that all CPUs share. */
struct counts {
	u64 count;
	u64 ns;
	u64 slots[SLOTS];
};

static __always_inline void count(struct counts *counts, u64 ns)
{
	__sync_fetch_and_add(&counts->count, 1);
	__sync_fetch_and_add(&counts->ns, ns);
	__sync_fetch_and_add(&counts->slots[slot_of(ns)], 1);
}

/* Of watched cgroups; entries are made and removed by who reads them. `newest`: its request that was
 * completed last. */
struct completion {
	u64 device; /* 0: none */
	u64 issued_ns;
	u64 end_ns;
};
struct group {
	struct counts queue;
	struct counts device;
	struct completion newest;
};
struct {
	__uint(type, MAP_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u64);
	__type(value, struct group);
} groups SEC(".maps");

/* Of all cgroups, on this CPU. */
struct {
	__uint(type, MAP_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct completion);
} newest_here SEC(".maps");

/* Tasks of watched cgroups that wait, by thread. Who reads adds what they have waited so far, and
 * says until when in `read_ns`: of a wait only the time after that counts when it is over. */
struct sleep {
	u64 since_ns;
	u64 cgroup;
};
struct {
	__uint(type, MAP_HASH);
	__uint(max_entries, 4096);
	__type(key, u64);
	__type(value, struct sleep);
} sleeping SEC(".maps");
struct {
	__uint(type, MAP_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} read_ns SEC(".maps");

/* Which culprits a victim will have is not known before; those of long ago make room. */
struct pair {
	u64 victim;
	u64 culprit;
};
struct {
	__uint(type, MAP_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct pair);
	__type(value, u64);
} waits SEC(".maps");

struct all {
	u64 lost;	/* requests and waits that found no room in a map */
	u64 others_ns;	/* waits of all victims because of other cgroups */
};
struct {
	__uint(type, MAP_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct all);
} all SEC(".maps");

static __always_inline void lose(void)
{
	u32 zero = 0;
	struct all *here = bpf_map_lookup_elem(&all, &zero);

	if (here)
		here->lost++;
}

static __always_inline void add_to_others(u64 ns)
{
	u32 zero = 0;
	struct all *here = bpf_map_lookup_elem(&all, &zero);

	if (here)
		here->others_ns += ns;
}

static __always_inline u64 clamp(u64 value, u64 low, u64 high)
{
	if (value < low)
		return low;
	return value < high ? value : high;
}

/* What the root writes is what the kernel writes back, a journal or a flush: on cgroup v1 all that is
 * written through the page cache. */
static __always_inline u64 owner_of(struct request *request)
{
	struct bio *bio = request->bio;
	u64 owner = bio && bio->bi_blkg ? bio->bi_blkg->blkcg->css.cgroup->kn->id : ROOT;

	return owner == ROOT && request->cmd_flags & 0xff ? KERNEL : owner;
}

static __always_inline u64 which_is(struct request *request)
{
	if (request->start_time_ns || !bpf_core_field_exists(request->__sector))
		return request->start_time_ns;
	return request->__sector;
}

static __always_inline bool was_never_issued(struct request *request)
{
	return bpf_core_field_exists(request->state) && request->state == MQ_RQ_IDLE;
}

static __always_inline void issue(struct request *request)
{
	struct issue now = { bpf_ktime_get_ns(), which_is(request) }, *at;
	u64 key = (u64)request;

	at = bpf_map_lookup_elem(&issued, &key);
	if (at)
		*at = now;
	else if (bpf_map_update_elem(&issued, &key, &now, BPF_ANY))
		lose();
}

SEC("tp_btf/block_rq_issue")
int on_issue(u64 *arguments)
{
	if (bpf_core_type_exists(btf_trace_block_rq_issue))
		issue((struct request *)arguments[0]);
	else
		issue((struct request *)arguments[1]);
	return 0;
}

static __always_inline struct device *device_of(struct request *request)
{
	u64 key = (u64)request->q;
	struct device *device = bpf_map_lookup_elem(&devices, &key);
	struct new_device *new;
	u32 zero = 0;

	if (device)
		return device;
	new = bpf_map_lookup_elem(&new_device, &zero);
	if (!new)
		return NULL;
	/* Refused also where another CPU was first. */
	bpf_map_update_elem(&devices, &key, new, BPF_NOEXIST);
	return bpf_map_lookup_elem(&devices, &key);
}

static __always_inline void remember(struct device *device, u64 cgroup, u64 from, u64 end)
{
	struct stretch *last, *next;

	if (options.with_lock)
		bpf_spin_lock(&device->lock);
	last = &device->ring[(device->count - 1) & (RING - 1)];
	if (end < last->end_ns)
		end = last->end_ns; /* another CPU was faster here */
	if (device->count && from <= last->end_ns && last->cgroup == cgroup) {
		last->end_ns = end;
	} else {
		next = &device->ring[device->count & (RING - 1)];
		next->from_ns = from < last->end_ns ? last->end_ns : from;
		next->end_ns = end;
		next->cgroup = cgroup;
		device->count++;
	}
	if (options.with_lock)
		bpf_spin_unlock(&device->lock);
}

static __always_inline void blame(u64 victim, u64 culprit, u64 ns)
{
	struct pair pair = { victim, culprit };
	u64 *sum, none = 0;

	if (!ns)
		return;
	sum = bpf_map_lookup_elem(&waits, &pair);
	if (!sum) {
		bpf_map_update_elem(&waits, &pair, &none, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&waits, &pair);
	}
	if (sum)
		__sync_fetch_and_add(sum, ns);
	else
		lose();
}

/* What no stretch covers is, before the newest request was issued, nobody's doing, and afterwards its
 * own service. */
static __always_inline void divide(struct completion *newest, u64 victim, u64 since, u64 now)
{
	u64 to = now, own = 0, idle = 0, others = 0, key = newest->device, number;
	struct device *device = bpf_map_lookup_elem(&devices, &key);

	if (!device) {
		blame(victim, OLDER, now - since);
		return;
	}
	number = device->count - 1;
#pragma clang loop unroll(disable)
	for (u32 back = 0; back < RING && to > since; back++) {
		struct stretch *this = &device->ring[(number - back) & (RING - 1)];
		u64 end = clamp(this->end_ns, since, to), from = clamp(this->from_ns, since, end);

		idle += clamp(newest->issued_ns, end, to) - end;
		own += to - clamp(newest->issued_ns, end, to);
		if (this->cgroup == victim)
			own += end - from;
		else if (from < end) {
			blame(victim, this->cgroup, end - from);
			others += end - from;
		}
		to = from;
	}
	add_to_others(others);
	blame(victim, victim, own);
	blame(victim, IDLE, idle);
	blame(victim, OLDER, to - since);
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(on_complete, struct request *request, int error, unsigned int bytes)
{
	u64 now = bpf_ktime_get_ns(), key = (u64)request, cgroup, since, at;
	struct completion this, *newest;
	struct issue *issue;
	struct device *device;
	struct group *group;
	u32 zero = 0;

	if (bytes < request->__data_len) /* the rest comes later */
		return 0;
	issue = bpf_map_lookup_elem(&issued, &key);
	if (!issue || !issue->at_ns)
		return 0;
	at = issue->at_ns;
	issue->at_ns = 0;
	if (issue->which != which_is(request) || was_never_issued(request))
		return 0; /* it is that of an earlier one */
	device = device_of(request);
	if (!device || now < at) {
		lose();
		return 0;
	}
	cgroup = owner_of(request);
	remember(device, cgroup, at, now);
	this.device = (u64)request->q;
	this.issued_ns = at;
	this.end_ns = now;
	newest = bpf_map_lookup_elem(&newest_here, &zero);
	if (newest)
		*newest = this;
	group = bpf_map_lookup_elem(&groups, &cgroup);
	if (!group)
		return 0;
	group->newest = this;
	since = request->start_time_ns;
	if (since && since <= at)
		count(&group->queue, at - since);
	count(&group->device, now - at);
	return 0;
}

static __always_inline void begin(struct task_struct *task)
{
	struct sleep sleep = {
		bpf_ktime_get_ns(),
		task->cgroups
			->subsys[bpf_core_enum_value(enum cgroup_subsys_id___io, io_cgrp_id___any)]
			->cgroup->kn->id,
	};
	u64 thread = task->pid;

	if (!bpf_map_lookup_elem(&groups, &sleep.cgroup))
		return;
	if (bpf_map_update_elem(&sleeping, &thread, &sleep, BPF_ANY))
		lose();
}

static __always_inline void end(struct task_struct *task)
{
	u64 thread = task->pid, now = bpf_ktime_get_ns(), victim, since, *read;
	struct sleep *sleep = bpf_map_lookup_elem(&sleeping, &thread);
	struct completion this, *newest;
	struct group *group;
	u32 zero = 0;

	if (!sleep)
		return;
	since = sleep->since_ns;
	victim = sleep->cgroup;
	bpf_map_delete_elem(&sleeping, &thread);
	read = bpf_map_lookup_elem(&read_ns, &zero);
	if (read && since < *read)
		since = *read;
	group = bpf_map_lookup_elem(&groups, &victim);
	if (!group || now <= since)
		return;
	this = group->newest;
	newest = bpf_map_lookup_elem(&newest_here, &zero);
	if (newest && newest->end_ns + JUST_NOW_NS >= now)
		this = *newest;
	divide(&this, victim, since, now);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	u64 thread = next->pid;

	/* It was woken before it had quite gone to sleep, and has waited for a CPU since. */
	if (BPF_CORE_READ_BITFIELD(next, in_iowait))
		bpf_map_delete_elem(&sleeping, &thread);
	if (!preempt && BPF_CORE_READ_BITFIELD(prev, in_iowait) && sleeps(prev))
		begin(prev);
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *task)
{
	if (BPF_CORE_READ_BITFIELD(task, in_iowait))
		end(task);
	return 0;
}
