/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_DEMO_FACTS_H
#define BRAID_TEST_DEMO_FACTS_H

#include "test/demo/incident.h"
#include "test/demo/timeline.h"

#include <stdbool.h>

/** What the demo was told, from its command line. */
struct demo {
	const char *rule;   /**< the fault, as the fabric takes it */
	const char *driver; /**< the driver's summary, JSON text; "" when there is none */
	double rate_mbps;   /**< of each rail; 0: unlimited */
	uint32_t host;      /**< the rule's, 0 without one */
	uint32_t rail;
	bool is_cut; /**< the rule ends all traffic of that rail, in a direction or both */
	bool has_tx; /**< the rule is about what the host sends */
	bool has_rx;
	bool is_healed; /**< the run was to mend the rail later on */
};

/** What a run shows. Times are CLOCK_MONOTONIC; 0 when it did not happen. */
struct facts {
	bool passed;         /**< the driver's verdict: every element right */
	const char *missing; /**< what is lacking for the demo to have shown its point, or NULL */
	char failure[256];   /**< why the driver's run failed, for `missing` to point to */
	uint64_t cut_ns;
	uint64_t noticed_ns;               /**< first fault a host reported after the cut */
	uint64_t replayed_ns;              /**< last replay after it */
	char cause[INCIDENT_TEXT_MAX];     /**< as first reported */
	const struct iteration *iteration; /**< in which the cut came, or NULL */
	uint64_t share_bytes;              /**< that rail, sent and received, mean before the cut */
	uint64_t carried_bytes;            /**< the same in the iteration of the cut */
	uint64_t later_bytes; /**< the same from the cut (and one sample) to the mending or the end
			       */
	uint64_t healed_ns;   /**< the rail was mended */
	uint64_t back_ns;     /**< the first sample after that which saw it carry data */
	uint64_t replayed_bytes;
	uint64_t replayed_pieces;
	double healthy_ms;   /**< median of the iterations before that one; 0: none */
	double degraded_ms;  /**< of those after it, up to the mending */
	double recovered_ms; /**< of those that began after back_ns; 0: none */
	double ratio;        /**< degraded to healthy; 0: unknown */
	double ideal;        /**< rails to remaining rails */
	/** Share of the rails' rate an all-reduce used before and after; 0: unknown. */
	double healthy_share;
	double degraded_share;
};

/** Fill in host, rail and the flags from demo->rule. Returns 0, or -EINVAL without host or rail. */
int demo_rule_read(struct demo *demo);

/** Work out what a finished run shows; what points into timeline stays its property. */
void facts_find(struct facts *facts, const struct demo *demo, const struct timeline *timeline,
		const struct incidents *incidents);

/** Bytes sent again after reports within [from_ns, to_ns]. */
uint64_t facts_replayed(const struct incidents *incidents, uint64_t from_ns, uint64_t to_ns);

#endif
