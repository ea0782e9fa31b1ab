/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_NCCL_LAUNCHER_H
#define BRAID_TEST_NCCL_LAUNCHER_H

#include <stdint.h>

struct launcher_options {
	int rank_count;
	int host_count;
	const char *plan_path;
	const char *nccl_path; /* NULL: as the loader finds it */
	const char *log_dir;   /* NULL: standard error is shared */
	uint64_t step_limit_ms;
	uint64_t limit_ms;
	int64_t corrupt_line; /* -1 none */
};

/** Runs the job; gives the exit status of the program. No rank is left on return. */
int launcher_run(const struct launcher_options *opts);

#endif
