/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_DEMO_DRAW_H
#define BRAID_TEST_DEMO_DRAW_H

#include "test/demo/facts.h"
#include "test/demo/svg.h"

#include <stdint.h>

/** Widths all parts of the page share; heights are each part's own. */
enum {
	PAGE_WIDTH = 1200,
	PLOT_LEFT = 108,
	PLOT_RIGHT = 1168
};

/** The page under construction. */
struct picture {
	FILE *file;
	const struct demo *demo;
	const struct timeline *timeline;
	const struct facts *facts;
	uint64_t from_ns; /**< start of the first iteration, end of the last */
	uint64_t to_ns;
	uint64_t lens_from_ns; /**< the part shown enlarged; both 0 without a fault */
	uint64_t lens_to_ns;
	double rate_max; /**< highest rate of one rail, MB/s */
};

/** Draw the page into file. Returns 0 or -EIO. */
int draw_page(FILE *file, const struct demo *demo, const struct timeline *timeline,
	      const struct facts *facts);

/** Height of the part that shows each rail over the whole run, and the part itself. */
double overview_height(const struct picture *picture);
void overview_draw(const struct picture *picture, double top);

/** The part that shows the moments around the fault. */
double zoom_height(const struct picture *picture);
void zoom_draw(const struct picture *picture, double top);

#endif
