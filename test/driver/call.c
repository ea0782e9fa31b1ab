/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/call.h"

#include <errno.h>
#include <stdio.h>

static void longest_note(_Atomic uint64_t *max_ns, char *max_name, size_t cap, const char *name,
			 uint64_t took_ns)
{
	/* Each of the two is written by one thread only. */
	if (took_ns > atomic_load_explicit(max_ns, memory_order_relaxed)) {
		atomic_store_explicit(max_ns, took_ns, memory_order_relaxed);
		snprintf(max_name, cap, "%s", name);
	}
}

int call_end(struct rank *rank, enum call_thread thread, const char *name, uint64_t start_ns,
	     enum nccl_result result)
{
	struct rank_report *report = rank->report;
	uint64_t now_ns = clock_mono_ns();
	uint64_t none_ns = 0;

	if (thread == CALL_PROGRESS) {
		longest_note(&report->call_max_ns, report->call_max_name,
			     sizeof(report->call_max_name), name, now_ns - start_ns);
		atomic_fetch_add_explicit(&report->call_count, 1, memory_order_relaxed);
	} else {
		longest_note(&report->setup_max_ns, report->setup_max_name,
			     sizeof(report->setup_max_name), name, now_ns - start_ns);
	}
	if (result == NCCL_RESULT_SUCCESS) {
		return 0;
	}
	if (atomic_compare_exchange_strong_explicit(&report->net_error_ns, &none_ns, now_ns,
						    memory_order_acq_rel, memory_order_acquire)) {
		atomic_store_explicit(&report->net_error, (int)result, memory_order_release);
	}
	tally_add(&report->tally, rank->id, TALLY_NET, 1, "%s returned %d", name, (int)result);
	return -EREMOTEIO;
}
