/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_CTL_H
#define BRAID_TEST_FABRIC_CTL_H

#include <stddef.h>
#include <stdint.h>

/*
 * The launcher's side of the software fabric: what a test that starts the processes calls. Any
 * thread, none blocks longer than a short lock. Works before, while and after processes use the
 * directory. Returns 0 or -errno unless said otherwise.
 */

struct fabric_ctl;

/** What a rail of a host carried since the directory was made. Payload bytes as placed. */
struct fabric_counters {
	uint64_t tx_bytes;
	uint64_t rx_bytes;
	uint64_t tx_msgs;
	uint64_t rx_msgs;
	/* Pieces (up to 256 KiB) of messages of this host that `late` held back, and what became of
	 * them; the difference is still under way. */
	uint64_t late_held;
	uint64_t late_landed;
	uint64_t late_dropped;
	uint64_t lost; /* packets of this host's requests that `drop` took */
};

/** A rule that fired. */
struct fabric_fired {
	uint32_t rule_idx; /* as fabric_ctl_fault() gave it */
	uint32_t host;
	uint32_t rail;
	uint64_t t_ns;     /* CLOCK_MONOTONIC */
	uint64_t seen;     /* what the trigger had counted: bytes, writes or imms */
	uint64_t tx_bytes; /* the rail's counters at that moment */
	uint64_t rx_bytes;
	char text[160];
};

/**
 * Makes a fresh directory for a run and gives its name, at most `len` bytes with the end. It is
 * removed when the last process that has `hold_fd` open ends, by whatever signal: this one, those
 * it forks, and those they execute if they clear FD_CLOEXEC. Call it while there is one thread.
 * Returns 0 or -errno.
 */
int fabric_ctl_make_dir(char *dir, size_t len, int *hold_fd);
/** Removes it now. */
void fabric_ctl_remove_dir(const char *dir);

/** Attaches to the existing directory `dir`, making the shared state in it if it is fresh. */
int fabric_ctl_open(const char *dir, struct fabric_ctl **ctl);
/** NULL is fine. Leaves the directory as it is. */
void fabric_ctl_close(struct fabric_ctl *ctl);

/** -EINVAL for a host or rail that cannot be. A rail nobody used yet reads zero. */
int fabric_ctl_counters(struct fabric_ctl *ctl, uint32_t host, uint32_t rail,
			struct fabric_counters *counters);

/**
 * Installs a fault rule, README.md has the language. Without a trigger it has fired on return. On a
 * malformed rule returns -EINVAL and fills `why` (may be NULL). `rule_idx` may be NULL.
 */
int fabric_ctl_fault(struct fabric_ctl *ctl, const char *rule, uint32_t *rule_idx, char *why,
		     size_t why_len);

/** How many rules fired so far. */
uint32_t fabric_ctl_fired_count(struct fabric_ctl *ctl);
/** The number-th rule that fired, from 0. -ENOENT when there is none (yet), or no more: the newest
 * 1024 are kept. */
int fabric_ctl_fired(struct fabric_ctl *ctl, uint32_t number, struct fabric_fired *fired);
/**
 * The rule that makes the number-th firing happen again in a run whose rules are there from its
 * start: the same action after as many bytes of its rail, and as much later as nothing moved there
 * in between. Rules that counted writes or immediates stay as they are. `text` gets at most `len`
 * bytes. -ENOENT as above.
 */
int fabric_ctl_replay(struct fabric_ctl *ctl, uint32_t number, char *text, size_t len);
/** Waits until rule `rule_idx` fired. -ETIMEDOUT after `timeout_ms`. `fired` may be NULL. */
int fabric_ctl_wait_fired(struct fabric_ctl *ctl, uint32_t rule_idx, uint32_t timeout_ms,
			  struct fabric_fired *fired);

#endif
