/* SPDX-License-Identifier: Apache-2.0 */
#include "test/bench/bench.h"

#include <errno.h>
#include <stdio.h>

/* Without valgrind's headers there is nothing to count with. */

void bench_count(struct bench_rank *rank)
{
	bench_die(rank, "built without valgrind's headers", 0);
}

int bench_count_start(const struct bench_options *opt, struct bench_table *table)
{
	(void)opt;
	(void)table;
	fprintf(stderr, "net_bench: --count: built without valgrind's headers\n");
	return -ECANCELED;
}
