/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/ack_list.h"

#include "include/clock.h"
#include "plugin/comm.h"

enum {
	ROUND_TURNS = 64, /* calls: some ten microseconds */
};

_Alignas(64) _Atomic uint32_t ack_list_open_count;
_Alignas(64) _Atomic uint32_t ack_list_count;

/* Oldest first. */
static struct {
	struct lock lock;
	struct comm *first, **end; /* lock; a reference each */
	uint32_t turn;             /* lock; calls while something is on the list */
} list = {.end = &list.first};

static void insert(struct comm *comm)
{
	lock_take(&list.lock);
	comm->ack_turn = list.turn;
	comm->ack_next = NULL;
	*list.end = comm;
	list.end = &comm->ack_next;
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
	struct comm *taken, **end = &taken;

	lock_take(&list.lock);
	list.turn++;
	taken = list.first;
	while (*end && (all || list.turn - (*end)->ack_turn >= ROUND_TURNS)) {
		end = &(*end)->ack_next;
		atomic_fetch_sub_explicit(&ack_list_count, 1, memory_order_relaxed);
	}
	list.first = *end;
	if (!list.first) {
		list.end = &list.first;
	}
	*end = NULL;
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
