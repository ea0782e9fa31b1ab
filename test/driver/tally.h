/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_DRIVER_TALLY_H
#define BRAID_TEST_DRIVER_TALLY_H

#include <stdatomic.h>
#include <stdint.h>

/**
 * What a rank can find wrong. Each row: name in the summary, what it means. All but the plugin's
 * warnings fail the run.
 */
#define TALLY_TABLE(X)                                                                             \
	X(WRONG, "wrong_elements", "elements of a result or of a message that are not right")      \
	X(GUARD, "guard_hits", "bytes changed outside the posted receive")                         \
	X(LATE, "late_writes", "bytes changed after the receive was reported done")                \
	X(DUPLICATE, "duplicates", "messages that hold an earlier message again")                  \
	X(EARLY, "early_dones", "receives reported done while data was missing")                   \
	X(SIZE, "size_errors", "wrong sizes reported by test")                                     \
	X(API, "api_errors", "broken rules of the net API")                                        \
	X(NET, "net_errors", "errors returned by the plugin while data moved")                     \
	X(WARN, "warnings", "lines the plugin logged at level WARN")

#define TALLY_ENUM(id, name, help) TALLY_##id,
enum tally_kind {
	TALLY_TABLE(TALLY_ENUM) TALLY_KIND_COUNT
};
#undef TALLY_ENUM

/** One rank's findings, in shared memory: written by that rank's threads, read by the launcher. */
struct tally {
	_Atomic uint64_t count[TALLY_KIND_COUNT];
	char first[TALLY_KIND_COUNT][192]; /**< where it was first seen */
};

/** Add n findings; the first of a kind is kept and, but for warnings, printed. Any thread. */
void tally_add(struct tally *tally, int rank, enum tally_kind kind, uint64_t n, const char *fmt,
	       ...) __attribute__((format(printf, 5, 6)));
uint64_t tally_read(const struct tally *tally, enum tally_kind kind);
const char *tally_name(enum tally_kind kind);

#endif
