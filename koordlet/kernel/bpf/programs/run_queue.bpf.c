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

/* When a watched cgroup was throttled on a CPU, the last few times: from when its running task was
 * put aside for it until the next one of its tasks is picked. Tasks that were waiting by then could
 * not go on either, though nothing about them changed. Groups whose places end in the same bits take
 * each other's room. */
#define HALTS 4
#define HALTED 16
struct halt {
	u64 from_ns;
	u64 to_ns;
};
struct halts {
	u64 cgroup;
	u64 since_ns; /* 0: it is not throttled */
	u64 count;
	struct halt of[HALTS];
};

struct cpu {
	u64 count;
	struct stretch ring[RING];
	struct halts halted[HALTED];
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

/* Watched cgroups and their places in `delays`, filled from outside. A table of its own, because
 * each wake-up and each switch looks into it: a hash map would take ten times as long. */
#define BUCKETS 1024
#define PER_BUCKET 4
struct watched {
	u64 cgroup;
	u64 place;
};
struct watched watched[BUCKETS * PER_BUCKET];
#define NOT_WATCHED -1

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

/* Sums that are not in `waits` yet: the same few pairs come again and again, and a look into the
 * map takes longer than all the rest. */
#define RECENT 8
struct recent {
	struct pair pair;
	struct sum sum;
};
struct recents {
	struct recent of[RECENT];
};
struct {
	__uint(type, MAP_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct recents);
} recents SEC(".maps");

struct {
	__uint(type, MAP_PERCPU_ARRAY);
	__uint(max_entries, 1024);
	__type(key, u32);
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

/* Else it is cgroups that are throttled, on one CPU with all their tasks there. */
static __always_inline bool throttles_tasks(struct task_struct *task)
{
	return bpf_core_field_exists(task->throttled);
}

static __always_inline bool is_throttled(struct task_struct *task)
{
	if (throttles_tasks(task))
		return task->throttled;
	if (bpf_core_field_exists(task->se.cfs_rq->throttle_count))
		return task->se.cfs_rq && task->se.cfs_rq->throttle_count > 0;
	return false;
}

static __always_inline s64 place_of(u64 cgroup)
{
	u32 first = (cgroup & (BUCKETS - 1)) * PER_BUCKET;

	for (u32 k = 0; k < PER_BUCKET; k++)
		if (watched[first + k].cgroup == cgroup)
			return watched[first + k].place;
	return NOT_WATCHED;
}

/* Whether it is throttled. */
static __always_inline bool begin(struct task_struct *task, u64 now)
{
	struct wait *wait = bpf_task_storage_get(&begun, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!wait)
		return false;
	wait->since_ns = now;
	wait->throttled = is_throttled(task);
	return wait->throttled;
}

static __always_inline void woken(struct task_struct *task)
{
	if (place_of(cgroup_of(task, options.by_cpu_controller)) != NOT_WATCHED)
		begin(task, bpf_ktime_get_ns());
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

/* Its own threads, unless somebody has put one into a cgroup: it works for that one then. */
static __always_inline u64 runner(struct task_struct *task, u64 cgroup)
{
	return cgroup == ROOT && task->flags & PF_KTHREAD ? KERNEL : cgroup;
}

static __always_inline void halt(struct cpu *cpu, s64 place, u64 cgroup, u64 now)
{
	struct halts *halts = &cpu->halted[place & (HALTED - 1)];

	if (halts->cgroup != cgroup) {
		halts->cgroup = cgroup;
		halts->since_ns = 0;
		halts->count = 0;
	}
	if (!halts->since_ns)
		halts->since_ns = now;
}

/* One of its tasks is picked. */
static __always_inline struct halts *go_on(struct cpu *cpu, s64 place, u64 cgroup, u64 now)
{
	struct halts *halts = &cpu->halted[place & (HALTED - 1)];
	struct halt *last = &halts->of[halts->count & (HALTS - 1)];

	if (halts->cgroup == cgroup && halts->since_ns) {
		last->from_ns = halts->since_ns;
		last->to_ns = now;
		halts->count++;
		halts->since_ns = 0;
	}
	return halts;
}

static __always_inline bool was_halted(struct halts *halts, u64 cgroup, u64 since)
{
	return halts->cgroup == cgroup && halts->count &&
	       halts->of[(halts->count - 1) & (HALTS - 1)].to_ns > since;
}

static __always_inline void keep(struct recent *recent)
{
	struct pair pair = recent->pair;
	struct sum *sum = bpf_map_lookup_elem(&waits, &pair), none = {};

	if (!sum) {
		/* Refused also where another CPU was first. */
		bpf_map_update_elem(&waits, &pair, &none, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&waits, &pair);
	}
	if (!sum) {
		lose();
		return;
	}
	sum->ns += recent->sum.ns;
	sum->count += recent->sum.count;
}

static __always_inline void blame(u64 victim, u64 culprit, u64 ns)
{
	u32 zero = 0;
	struct recents *all = bpf_map_lookup_elem(&recents, &zero);
	struct recent *recent;

	if (!all)
		return;
	recent = &all->of[(victim ^ (culprit * 5)) & (RECENT - 1)];
	if (recent->pair.victim != victim || recent->pair.culprit != culprit) {
		if (recent->sum.count)
			keep(recent);
		/* Whoever reads in between finds nothing here, and not the old sum of a new pair. */
		recent->sum.count = 0;
		recent->sum.ns = 0;
		__asm__ volatile("" ::: "memory");
		recent->pair.victim = victim;
		recent->pair.culprit = culprit;
	}
	recent->sum.ns += ns;
	recent->sum.count++;
}

/* The part of a stretch that lies after `since`. Not static, so the verifier looks at it once and
 * not once for each way through the loop below. */
__attribute__((noinline)) int overlap(u64 victim, u64 culprit, u64 from, u64 to, u64 since)
{
	if (from < since)
		from = since;
	if (to <= from)
		return 0;
	blame(victim, culprit, to - from);
	if (culprit != victim && culprit != IDLE)
		add_to_others(to - from);
	return 0;
}

/* The part of a wait from `since` to `until`, among those who ran then. By itself for the same
 * reason. */
__attribute__((noinline)) int divide(u64 victim, u64 since, u64 until)
{
	u32 zero = 0;
	struct cpu *cpu = bpf_map_lookup_elem(&cpus, &zero);
	u64 to = until;

	if (!cpu || until <= since)
		return 0;
#pragma clang loop unroll(disable)
	for (u32 back = 1; back < RING; back++) {
		u64 this = (cpu->count - back) & (RING - 1);
		/* Of the first stretch ever it is one that has no end yet: 0. */
		u64 before = (cpu->count - back - 1) & (RING - 1);
		u64 from = cpu->ring[before].end_ns;

		if (back > cpu->count)
			break;
		if (from >= until) /* later */
			continue;
		overlap(victim, cpu->ring[this].cgroup, from, to, since);
		to = from;
		if (from <= since)
			return 0;
	}
	blame(victim, OLDER, to - since);
	return 0;
}

static __always_inline void divide_around(struct halts *halts, u64 victim, u64 since, u64 now)
{
	u64 to = now;

#pragma clang loop unroll(full)
	for (u32 back = 1; back <= HALTS; back++) {
		struct halt *halt = &halts->of[(halts->count - back) & (HALTS - 1)];
		u64 from = halt->from_ns < since ? since : halt->from_ns;

		if (back > halts->count || halt->to_ns <= since) {
			divide(victim, since, to);
			return;
		}
		divide(victim, halt->to_ns, to);
		blame(victim, THROTTLED, halt->to_ns - from);
		to = from;
		if (to <= since)
			return;
	}
	blame(victim, OLDER, to - since);
}

static __always_inline void note_delay(u32 place, u64 ns)
{
	struct distribution *delay = bpf_map_lookup_elem(&delays, &place);

	if (delay)
		observe(delay, ns);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	u64 now = bpf_ktime_get_ns(), victim, since;
	struct halts *halts;
	struct cpu *cpu;
	struct wait *wait;
	u32 zero = 0;
	s64 place;

	cpu = bpf_map_lookup_elem(&cpus, &zero);
	if (!cpu)
		return 0;
	if (prev->pid) {
		u64 cgroup = cgroup_of(prev, options.by_cpu_controller);

		if (options.with_matrix)
			remember(cpu, runner(prev, cgroup), now);
		place = place_of(cgroup);
		if (place != NOT_WATCHED && could_go_on(prev) && begin(prev, now) &&
		    !throttles_tasks(prev))
			halt(cpu, place, cgroup, now);
	} else if (options.with_matrix) {
		remember(cpu, IDLE, now);
	}
	if (!next->pid)
		return 0;
	victim = cgroup_of(next, options.by_cpu_controller);
	place = place_of(victim);
	if (place == NOT_WATCHED)
		return 0;
	halts = go_on(cpu, place, victim, now);
	wait = bpf_task_storage_get(&begun, next, 0, 0);
	if (!wait || !wait->since_ns)
		return 0;
	since = wait->since_ns;
	wait->since_ns = 0;
	if (now < since)
		return 0;
	note_delay(place, now - since);
	if (!options.with_matrix)
		return 0;
	if (was_halted(halts, victim, since))
		divide_around(halts, victim, since, now);
	else if (wait->throttled)
		blame(victim, THROTTLED, now - since);
	else if (now - since >= LEAST_NS)
		divide(victim, since, now);
	return 0;
}
