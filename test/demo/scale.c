/* SPDX-License-Identifier: Apache-2.0 */
#include "test/demo/scale.h"

double scale_at(const struct scale *scale, double value)
{
	double span = scale->value_to - scale->value_from;
	double share;

	if (!(span > 0)) {
		return scale->at_from;
	}
	share = (value - scale->value_from) / span;
	if (!(share > 0)) {
		share = 0;
	} else if (share > 1) {
		share = 1;
	}
	return scale->at_from + share * (scale->at_to - scale->at_from);
}

double scale_step(double span, int count_max)
{
	static const double parts[] = {1, 2, 5};
	double power = 1;

	if (!(span > 0) || span > 1e30 || count_max < 1) {
		return 1;
	}
	while (power * count_max > span && power > 1e-12) {
		power /= 10;
	}
	while (power * 10 * count_max < span) {
		power *= 10;
	}
	for (int i = 0; i < 3; i++) {
		if (parts[i] * power * count_max >= span) {
			return parts[i] * power;
		}
	}
	return 10 * power;
}
