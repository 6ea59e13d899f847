/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The running task, by helpers that Linux 5.10 has too. Include after core.h.
 */
#ifndef KOORDLET_CURRENT_H
#define KOORDLET_CURRENT_H

/* A controller's part of the task's cgroup. */
static __always_inline struct cgroup_subsys_state *current_state(u64 controller)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct cgroup_subsys_state *state = NULL;

	bpf_probe_read_kernel(&state, sizeof(state),
			      (void *)BPF_CORE_READ(task, cgroups) +
				      bpf_core_field_offset(struct css_set, subsys) +
				      controller * sizeof(state));
	return state;
}

/* Id in the unified hierarchy. */
static __always_inline u64 current_unified(void)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();

	return BPF_CORE_READ(task, cgroups, dfl_cgrp, kn, id);
}

#endif
