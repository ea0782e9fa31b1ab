/* SPDX-License-Identifier: Apache-2.0 */
#include "test/demo/svg.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>

static const double LEVEL = 0.05; /* pixels */

/*
 * Colours are Okabe and Ito's, told apart with any colour vision: blue, vermillion and greys. The
 * page brings its own background, for viewers that are dark.
 */
static const char style[] =
	"text{font-family:system-ui,-apple-system,'Segoe UI',Helvetica,Arial,'DejaVu Sans',"
	"sans-serif;font-size:13px;fill:#24292f}\n"
	".page{fill:#ffffff}\n"
	".title{font-size:23px;font-weight:600}\n"
	".sub{font-size:14px;fill:#40474f}\n"
	".head{font-size:15px;font-weight:600}\n"
	".note{font-size:11.5px;fill:#68707a}\n"
	".tick{font-size:11.5px;fill:#68707a}\n"
	".halo{stroke:#ffffff;stroke-width:4px;stroke-linejoin:round;paint-order:stroke}\n"
	".mid{text-anchor:middle}\n"
	".end{text-anchor:end}\n"
	".strong{font-weight:600}\n"
	".red{fill:#b34700}\n"
	".band{fill:#eef2f6}\n"
	".lens{fill:#fbeadd}\n"
	".onfill{fill:#ffffff;font-size:12px}\n"
	".area{stroke:#ffffff;stroke-width:.75}\n"
	".axis{stroke:#8c959f;stroke-width:1;fill:none}\n"
	".grid{stroke:#d5dae0;stroke-width:1;fill:none}\n"
	".healthy{fill:#0072b2}\n"
	".faulty{fill:#d55e00}\n"
	".peer{fill:none;stroke:#8c959f;stroke-width:1;stroke-opacity:.75}\n"
	".cut{stroke:#d55e00;stroke-width:2;fill:none}\n"
	".cutdot{fill:#d55e00}\n"
	".mark{stroke:#24292f;stroke-width:1.5;fill:none}\n"
	".markdot{fill:#24292f}\n";

static void text_escape(FILE *file, const char *text)
{
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c == '&') {
			fputs("&amp;", file);
		} else if (c == '<') {
			fputs("&lt;", file);
		} else if (c == '>') {
			fputs("&gt;", file);
		} else if (c < 0x20) {
			fputc(' ', file);
		} else {
			fputc(c, file);
		}
	}
}

void svg_begin(FILE *file, double width, double height, const char *title)
{
	fprintf(file,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
		"viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n<title>",
		width, height, width, height);
	text_escape(file, title);
	fprintf(file, "</title>\n<style>%s</style>\n", style);
	svg_rect(file, (struct box){0, 0, width, height}, "page");
}

void svg_end(FILE *file)
{
	fputs("</svg>\n", file);
}

void svg_rect(FILE *file, struct box box, const char *classes)
{
	fprintf(file, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=\"%s\"/>\n",
		box.x, box.y, box.width, box.height, classes);
}

void svg_line(FILE *file, struct point a, struct point b, const char *classes)
{
	fprintf(file, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n", a.x,
		a.y, b.x, b.y, classes);
}

void svg_circle(FILE *file, struct point centre, double radius, const char *classes)
{
	fprintf(file, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" class=\"%s\"/>\n", centre.x,
		centre.y, radius, classes);
}

void svg_text(FILE *file, struct point at, const char *classes, const char *fmt, ...)
{
	char text[512];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	fprintf(file, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", at.x, at.y, classes);
	text_escape(file, text);
	fputs("</text>\n", file);
}

/** Is the point on a level line between its neighbours? Then the picture is the same without it. */
static bool is_level(const struct point *points, size_t count, size_t i)
{
	return i > 0 && i + 1 < count && fabs(points[i].y - points[i - 1].y) < LEVEL &&
	       fabs(points[i].y - points[i + 1].y) < LEVEL;
}

static void points_write(FILE *file, const struct point *points, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (is_level(points, count, i)) {
			continue;
		}
		fprintf(file, "%s%.1f,%.1f", i ? " " : "", points[i].x, points[i].y);
	}
}

void svg_area(FILE *file, const struct point *upper, const struct point *lower, size_t count,
	      const char *fill)
{
	fputs("<polygon points=\"", file);
	points_write(file, upper, count);
	for (size_t i = count; i > 0; i--) {
		if (is_level(lower, count, i - 1)) {
			continue;
		}
		fprintf(file, " %.1f,%.1f", lower[i - 1].x, lower[i - 1].y);
	}
	fprintf(file, "\" fill=\"%s\" class=\"area\"/>\n", fill);
}

void svg_path(FILE *file, const struct point *points, size_t count, const char *classes)
{
	fputs("<polyline points=\"", file);
	points_write(file, points, count);
	fprintf(file, "\" class=\"%s\"/>\n", classes);
}
