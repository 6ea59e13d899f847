/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * How long block requests of watched cgroups wait and are served, and whose requests the device
 * completed meanwhile.
 *
 * A request waits from when it is made until the driver gets it, then it is in the device until it
 * completes. Each device remembers its last RING stretches of serving one cgroup: a stretch ends
 * with a completion and begins with the completion before or, if the device had nothing to do, when
 * the request was issued. When a request of a watched cgroup completes, its time is divided among
 * the stretches that overlap it.
 */
#include "core.h"

char LICENSE[] SEC("license") = "GPL";

const volatile struct {
	u32 with_lock; /* 5.10 has no lock for these programs: two CPUs may lose a stretch there */
} options;

/* Culprits that are no cgroup. Ids of cgroups are inode numbers, 1 being a root. */
#define IDLE 0ULL		/* the device had nothing to do: a scheduler held the request back */
#define SYSTEM 1ULL		/* requests without an owner, such as flushes */
#define OLDER (~0ULL - 1)	/* before what the ring remembers */

#define RING 64

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
struct request {
	struct request_queue *q;
	struct bio *bio;
	unsigned int __data_len;
	u64 start_time_ns; /* 0 where the device keeps no statistics (queue/iostats) */
};
#pragma clang attribute pop

/* Since 5.11; before, the request was the second argument. A type is compared with all its
 * parameters. */
typedef void (*btf_trace_block_rq_issue)(void *, struct request *);

/* When requests were issued; 0 once they are complete. A device has so many and uses them again and
 * again, so that entries stay: making and removing them would cost more than all the rest. */
struct {
	__uint(type, MAP_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, u64);
	__type(value, u64);
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

/* Of watched cgroups; entries are made and removed by who reads them. */
struct group {
	struct counts queue;
	struct counts device;
};
struct {
	__uint(type, MAP_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u64);
	__type(value, struct group);
} groups SEC(".maps");

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
	u64 lost;	/* requests that found no room in a map */
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

static __always_inline u64 owner_of(struct request *request)
{
	struct bio *bio = request->bio;

	if (!bio || !bio->bi_blkg)
		return SYSTEM;
	return bio->bi_blkg->blkcg->css.cgroup->kn->id;
}

static __always_inline void issue(struct request *request)
{
	u64 key = (u64)request, now = bpf_ktime_get_ns(), *at;

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

/* The number of the stretch that the completion at `end` is in. */
static __always_inline u64 remember(struct device *device, u64 cgroup, u64 from, u64 end)
{
	struct stretch *last, *next;
	u64 number;

	if (options.with_lock)
		bpf_spin_lock(&device->lock);
	number = device->count;
	last = &device->ring[(number - 1) & (RING - 1)];
	if (end < last->end_ns)
		end = last->end_ns; /* another CPU was faster here */
	if (number && from <= last->end_ns && last->cgroup == cgroup) {
		last->end_ns = end;
		number--;
	} else {
		next = &device->ring[number & (RING - 1)];
		next->from_ns = from < last->end_ns ? last->end_ns : from;
		next->end_ns = end;
		next->cgroup = cgroup;
		device->count = number + 1;
	}
	if (options.with_lock)
		bpf_spin_unlock(&device->lock);
	return number;
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

/* [since, issued) in the queue, [issued, now) in the device. What no stretch covers is, in the
 * queue, nobody's doing, and in the device its own service. */
static __always_inline void divide(struct device *device, u64 number, u64 victim, u64 since,
				   u64 issued, u64 now)
{
	u64 to = now, own = 0, idle = 0, others = 0;

#pragma clang loop unroll(disable)
	for (u32 back = 0; back < RING && to > since; back++) {
		struct stretch *this = &device->ring[(number - back) & (RING - 1)];
		u64 end = clamp(this->end_ns, since, to), from = clamp(this->from_ns, since, end);

		idle += clamp(issued, end, to) - end;
		own += to - clamp(issued, end, to);
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
	u64 now = bpf_ktime_get_ns(), key = (u64)request, cgroup, since, *issued_at, at, number;
	struct device *device;
	struct group *group;

	if (bytes < request->__data_len) /* the rest comes later */
		return 0;
	issued_at = bpf_map_lookup_elem(&issued, &key);
	if (!issued_at || !*issued_at)
		return 0;
	at = *issued_at;
	*issued_at = 0;
	device = device_of(request);
	if (!device || now < at) {
		lose();
		return 0;
	}
	cgroup = owner_of(request);
	number = remember(device, cgroup, at, now);
	group = bpf_map_lookup_elem(&groups, &cgroup);
	if (!group)
		return 0;
	since = request->start_time_ns;
	if (since && since <= at)
		count(&group->queue, at - since);
	else
		since = at;
	count(&group->device, now - at);
	divide(device, number, cgroup, since, at, now);
	return 0;
}
