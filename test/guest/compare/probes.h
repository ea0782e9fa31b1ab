/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_GUEST_COMPARE_PROBES_H
#define BRAID_TEST_GUEST_COMPARE_PROBES_H

#include "test/guest/compare/pair.h"

/** Print one line, "TOPIC: result"; the topics are what two drivers are laid side by side by. */
void say(const char *topic, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/**
 * Completions as "1:0 2:5": number and status, in their order; "none" if the first does not come in
 * wait_ms. Ends when no other comes for as long, at most 300 ms.
 */
const char *wcs_text(struct end *end, uint32_t wait_ms, char *text, size_t cap);

/* Each drives a fresh pair of ends and says what it saw; a = requester, b = responder. */
void probe_states(struct end *a, struct end *b);
void probe_flush(struct end *a, struct end *b);
void probe_late_posts(struct end *a, struct end *b);
void probe_failed_wc(struct end *a, struct end *b);
void probe_patience(struct end *a, struct end *b);
void probe_rnr(struct end *a, struct end *b);
void probe_keys(struct end *a, struct end *b);
void probe_numbers(struct end *a, struct end *b);
void probe_received(struct end *a, struct end *b);
void probe_left(struct end *a, struct end *b);
void probe_self(struct end *a, struct end *b);
void probe_full(struct end *a, struct end *b);
void probe_qp_events(struct end *a, struct end *b);
/** Port and address come and go by the shell commands in $COMPARE_CUT, _MEND, _UNNAME, _NAME. */
void probe_port_events(struct end *a, struct end *b);
void probe_stream(struct end *a, struct end *b);
/** A peer process with device_b that is stopped, then killed. Forks: before any device is open. */
void probe_process(const char *device_a, const char *device_b);

#endif
