/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/call.h"

#include <errno.h>

#define SLICE_NS 2000000ll

static void call_block(struct fab_port *port, enum fab_call call)
{
	const struct timespec slice = {.tv_nsec = SLICE_NS};
	uint64_t start_ns = fab_now_ns();

	for (;;) {
		uint64_t ms =
			atomic_load_explicit(&port->call_block_ms[call], memory_order_relaxed);

		if (fab_now_ns() - start_ns >= ms * 1000000ull) {
			return;
		}
		nanosleep(&slice, NULL); /* whoever heals knows of no waiter */
	}
}

int fab_call_begin(struct fab_port *port, enum fab_call call)
{
	uint32_t left = atomic_load_explicit(&port->call_fails_in[call], memory_order_relaxed);

	if (atomic_load_explicit(&port->call_block_ms[call], memory_order_relaxed) != 0) {
		call_block(port, call);
	}
	while (left != 0) {
		if (atomic_compare_exchange_weak(&port->call_fails_in[call], &left, left - 1)) {
			return left == 1 ? -ENOMEM : 0;
		}
	}
	return 0;
}
