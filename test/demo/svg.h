/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_DEMO_SVG_H
#define BRAID_TEST_DEMO_SVG_H

#include <stdio.h>

struct point {
	double x;
	double y;
};

struct box {
	double x;
	double y;
	double width;
	double height;
};

/**
 * Elements of an SVG page, each with CSS classes; units are pixels. Texts are escaped. Write errors
 * stay in the stream's error flag, for the caller to look at.
 */
void svg_begin(FILE *file, double width, double height, const char *title);
void svg_end(FILE *file);
void svg_rect(FILE *file, struct box box, const char *classes);
void svg_line(FILE *file, struct point a, struct point b, const char *classes);
void svg_circle(FILE *file, struct point centre, double radius, const char *classes);
void svg_text(FILE *file, struct point at, const char *classes, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/** `fill`: a colour the style sheet does not know, or NULL; closed with `lower`, point by point. */
void svg_area(FILE *file, const struct point *upper, const struct point *lower, size_t count,
	      const char *fill);
void svg_path(FILE *file, const struct point *points, size_t count, const char *classes);

#endif
