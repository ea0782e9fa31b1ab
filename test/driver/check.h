/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_DRIVER_CHECK_H
#define BRAID_TEST_DRIVER_CHECK_H

#include "test/driver/rank.h"

/*
 * Checks of the memory a connection receives into. Each adds what it finds to the rank's tally,
 * with rank, peer, iteration and message.
 */

/** Before slot idx is posted: what an earlier message left poisoned must be untouched. */
void check_slot(struct rank *rank, struct conn *conn, uint64_t idx);
/** After test said done: the sizes it wrote, one entry for our one receive. */
void check_sizes(struct rank *rank, struct conn *conn, uint64_t idx, const int *sizes,
		 size_t size_count);
/**
 * First and last elements of a received message; stride_words from one element to the next. Tells
 * missing data, an earlier message's data and wrong data apart.
 */
void check_edges(struct rank *rank, struct conn *conn, uint64_t idx, const uint32_t *data,
		 size_t stride_words);
/** Behind a received message, inside its slot: nothing may have been written. */
void check_tail(struct rank *rank, struct conn *conn, uint64_t idx);
/** ll: the message must still be as it was when it was used. */
void check_digest(struct rank *rank, struct conn *conn, uint64_t idx);
/** Between iterations: guards of the connection's staging memory, and all receive slots. */
void check_conn(struct rank *rank, struct conn *conn);

/** Every element of the job's result in rank->out, and the guards of the user buffers. */
void check_result(struct rank *rank);
/** Poison out over the iteration's length after its result was checked. */
void check_out_poison(struct rank *rank);
/** Out must be as check_out_poison left it. */
void check_out_untouched(struct rank *rank);

#endif
