/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_DEMO_SCALE_H
#define BRAID_TEST_DEMO_SCALE_H

/** Maps values to places on the page: value_from to at_from, value_to to at_to, evenly. */
struct scale {
	double value_from;
	double value_to;
	double at_from;
	double at_to;
};

/** The place of a value; values outside are clamped to the ends. at_from for an empty range. */
double scale_at(const struct scale *scale, double value);

/**
 * A step of 1, 2 or 5 times a power of ten that cuts a range of that span into at most count_max
 * parts. 1 for a span of 0 or less.
 */
double scale_step(double span, int count_max);

#endif
