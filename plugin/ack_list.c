/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/ack_list.h"

#include "plugin/comm.h"

enum {
	/* Calls, some ten microseconds; and so many for each open request, as with many of them
	 * even a receive that follows at once comes only when NCCL has asked for all others. */
	ROUND_CALLS = 64,
	ROUND_CALLS_EACH = 4,
};

_Alignas(64) _Atomic uint32_t ack_list_open_count;
_Alignas(64) _Atomic uint32_t ack_list_count;
_Atomic uint32_t ack_list_calls, ack_list_due;

/* In the order in which they came. */
static struct {
	struct lock lock;
	struct comm *first, **end; /* lock; a reference each */
} list = {.end = &list.first};

static void note_due(void)
{
	if (list.first) {
		atomic_store_explicit(&ack_list_due, list.first->ack_due, memory_order_relaxed);
	}
}

static void insert(struct comm *comm)
{
	uint32_t open = atomic_load_explicit(&ack_list_open_count, memory_order_relaxed);

	lock_take(&list.lock);
	comm->ack_due = atomic_load_explicit(&ack_list_calls, memory_order_relaxed) + ROUND_CALLS +
			ROUND_CALLS_EACH * open;
	comm->ack_next = NULL;
	*list.end = comm;
	list.end = &comm->ack_next;
	note_due();
	atomic_fetch_add_explicit(&ack_list_count, 1, memory_order_relaxed);
	lock_give(&list.lock);
}

bool ack_list_add(struct comm *comm)
{
	if (atomic_load_explicit(&ack_list_open_count, memory_order_relaxed) <= 1) {
		return false;
	}
	insert(comm_hold(comm));
	return true;
}

/* All, or those whose round is over, which are the first ones. */
static struct comm *take(bool all)
{
	uint32_t call = atomic_load_explicit(&ack_list_calls, memory_order_relaxed);
	struct comm *taken, **end = &taken;

	lock_take(&list.lock);
	taken = list.first;
	while (*end && (all || (int32_t)(call - (*end)->ack_due) >= 0)) {
		end = &(*end)->ack_next;
		atomic_fetch_sub_explicit(&ack_list_count, 1, memory_order_relaxed);
	}
	list.first = *end;
	if (!list.first) {
		list.end = &list.first;
	}
	*end = NULL;
	note_due();
	lock_give(&list.lock);
	return taken;
}

static void look_at(struct comm *comm, bool is_last)
{
	bool again = false;

	lock_take(&comm->lock);
	if (comm->state == COMM_READY && !comm->is_quiet) {
		again = repair_rx_ack_round(&comm->rx, is_last, comm->end.now_ns);
	}
	if (again) {
		insert(comm);
	}
	comm_unlock(comm);
	if (!again) {
		comm_put(comm);
	}
}

static void run(bool all)
{
	struct comm *comm = take(all), *next;

	for (; comm; comm = next) {
		next = comm->ack_next;
		look_at(comm, all);
	}
}

void ack_list_run(void)
{
	run(atomic_load_explicit(&ack_list_open_count, memory_order_acquire) == 0);
}

void ack_list_flush(void)
{
	if (atomic_load_explicit(&ack_list_count, memory_order_relaxed)) {
		run(true);
	}
}
