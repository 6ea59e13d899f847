/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * How long tasks reclaim memory before they get some, how much each cgroup reclaims for itself, and
 * what TCP sends again. Each of these is rare on a calm machine.
 */
#include "core.h"
#include "current.h"

char LICENSE[] SEC("license") = "GPL";

const volatile struct {
	u32 by_memory_controller;
} options;

enum { MAP_LRU_HASH = 9 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
typedef struct {
	s64 counter;
} atomic64_t;
typedef atomic64_t atomic_long_t;
struct page_counter {
	atomic_long_t usage; /* pages, as the two below */
	unsigned long max;
	unsigned long high; /* since 5.8 */
	struct page_counter *parent;
};
struct mem_cgroup {
	struct cgroup_subsys_state css;
	struct page_counter memory;
};
struct sock_cgroup_data {
	struct cgroup *cgroup; /* since 5.15 */
};
struct sock {
	struct sock_cgroup_data sk_cgrp_data;
};
struct sock_cgroup_data___before_5_15 {
	u64 val; /* a pointer, or network priority and class with one of the two lowest bits set */
};
struct sock___before_5_15 {
	struct sock_cgroup_data___before_5_15 sk_cgrp_data;
};
#pragma clang attribute pop

/* As in core.h; what follows ___ is no part of a name. */
enum cgroup_subsys_id___memory { memory_cgrp_id___any };

/* What is short of memory: a cgroup at its limit, or this. */
#define MACHINE 0ULL
#define LEVELS 16

enum kind { DIRECT, MEMCG, COMPACTION };

struct key {
	u64 scope;
	u64 cgroup;
};
struct stall {
	u64 count;
	u64 ns;
	u64 pages; /* that it reclaimed */
};
struct {
	__uint(type, MAP_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct key);
	__type(value, struct stall);
} stalls SEC(".maps");

/* By cgroup of the unified hierarchy, the only one that sockets know. */
struct {
	__uint(type, MAP_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u64);
	__type(value, u64);
} retransmits SEC(".maps");

/* Stalls, but those of cgroups at their own limit. */
struct {
	__uint(type, MAP_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} others_ns SEC(".maps");

/* What tasks are at, by thread and kind. */
struct place {
	u64 thread;
	u64 kind;
};
struct begun {
	u64 since_ns;
	u64 scope;
};
struct {
	__uint(type, MAP_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct place);
	__type(value, struct begun);
} begun SEC(".maps");

static __always_inline struct mem_cgroup *current_memory(void)
{
	u64 controller = bpf_core_enum_value(enum cgroup_subsys_id___memory, memory_cgrp_id___any);

	return (void *)current_state(controller) - bpf_core_field_offset(struct mem_cgroup, css);
}

static __always_inline s64 room(struct page_counter *counter)
{
	u64 most = BPF_CORE_READ(counter, max), high;

	if (bpf_core_field_exists(counter->high)) {
		high = BPF_CORE_READ(counter, high);
		most = high < most ? high : most;
	}
	return (s64)most - BPF_CORE_READ(counter, usage.counter);
}

/* The cgroup whose limit it is: of the task's and those above it, the one with the least room. */
static __always_inline u64 limited(void)
{
	struct mem_cgroup *leaf = current_memory(), *found = leaf;
	struct page_counter *counter = (void *)leaf + bpf_core_field_offset(struct mem_cgroup, memory);
	s64 least = room(counter);

#pragma clang loop unroll(disable)
	for (int level = 0; level < LEVELS; level++) {
		s64 here;

		counter = BPF_CORE_READ(counter, parent);
		if (!counter)
			break;
		here = room(counter);
		if (here < least) {
			least = here;
			found = (void *)counter - bpf_core_field_offset(struct mem_cgroup, memory);
		}
	}
	return BPF_CORE_READ(found, css.cgroup, kn, id);
}

static __always_inline u64 current_cgroup(void)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	u64 cgroup = options.by_memory_controller
			     ? BPF_CORE_READ(current_memory(), css.cgroup, kn, id)
			     : current_unified();

	return cgroup == ROOT && BPF_CORE_READ(task, flags) & PF_KTHREAD ? KERNEL : cgroup;
}

static __always_inline void begin(u64 kind)
{
	struct place place = { (u32)bpf_get_current_pid_tgid(), kind };
	struct begun now = { bpf_ktime_get_ns(), kind == MEMCG ? limited() : MACHINE };

	bpf_map_update_elem(&begun, &place, &now, BPF_ANY);
}

static __always_inline void end(u64 kind, u64 pages)
{
	struct place place = { (u32)bpf_get_current_pid_tgid(), kind };
	struct begun *since = bpf_map_lookup_elem(&begun, &place);
	struct stall *stall, none = {};
	struct key key;
	u32 zero = 0;
	u64 ns, *others;

	if (!since)
		return;
	ns = bpf_ktime_get_ns() - since->since_ns;
	key.scope = since->scope;
	key.cgroup = current_cgroup();
	bpf_map_delete_elem(&begun, &place);
	others = bpf_map_lookup_elem(&others_ns, &zero);
	if (others && key.scope != key.cgroup)
		*others += ns;
	stall = bpf_map_lookup_elem(&stalls, &key);
	if (!stall) {
		/* Refused also where another CPU was first. */
		bpf_map_update_elem(&stalls, &key, &none, BPF_NOEXIST);
		stall = bpf_map_lookup_elem(&stalls, &key);
	}
	if (!stall)
		return;
	__sync_fetch_and_add(&stall->count, 1);
	__sync_fetch_and_add(&stall->ns, ns);
	if (pages) /* of a constant 0 the compiler makes an operation that 5.10 does not have */
		__sync_fetch_and_add(&stall->pages, pages);
}

SEC("tp_btf/mm_vmscan_direct_reclaim_begin")
int on_direct_begin(void *arguments)
{
	begin(DIRECT);
	return 0;
}

SEC("tp_btf/mm_vmscan_direct_reclaim_end")
int BPF_PROG(on_direct_end, unsigned long pages)
{
	end(DIRECT, pages);
	return 0;
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_begin")
int on_memcg_begin(void *arguments)
{
	begin(MEMCG);
	return 0;
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_end")
int BPF_PROG(on_memcg_end, unsigned long pages)
{
	end(MEMCG, pages);
	return 0;
}

SEC("tp_btf/mm_compaction_begin")
int on_compaction_begin(void *arguments)
{
	begin(COMPACTION);
	return 0;
}

SEC("tp_btf/mm_compaction_end")
int on_compaction_end(void *arguments)
{
	end(COMPACTION, 0);
	return 0;
}

static __always_inline u64 owner_of(struct sock *sock)
{
	u64 word;

	if (bpf_core_field_exists(sock->sk_cgrp_data.cgroup))
		return BPF_CORE_READ(sock, sk_cgrp_data.cgroup, kn, id);
	word = BPF_CORE_READ((struct sock___before_5_15 *)sock, sk_cgrp_data.val);
	return word & 3 ? 0 : BPF_CORE_READ((struct cgroup *)word, kn, id);
}

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(on_retransmit, struct sock *sock)
{
	u64 cgroup = owner_of(sock), *count = bpf_map_lookup_elem(&retransmits, &cgroup), one = 1;

	if (count)
		__sync_fetch_and_add(count, 1);
	else
		bpf_map_update_elem(&retransmits, &cgroup, &one, BPF_NOEXIST);
	return 0;
}
