/* SPDX-License-Identifier: Apache-2.0 */
#include "test/bench/bench.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

/* One bar per metric and plugin: its ratio to the first plugin, logarithmic, 1 in the middle. */

enum {
	ROW_PX = 16,
	NAME_PX = 340,
	BARS_PX = 400, /* from 1/16 to 16 */
	WIDTH_PX = NAME_PX + BARS_PX + 80,
};

static const char *const colours[BENCH_PLUGINS_MAX] = {"#888888", "#1f77b4", "#ff7f0e", "#2ca02c"};

static double place_px(double ratio)
{
	double place = log2(ratio) / 8 + 0.5;

	place = place < 0 ? 0 : place > 1 ? 1 : place;
	return NAME_PX + BARS_PX * place;
}

static void text(FILE *file, double x, unsigned int y, const char *string)
{
	fprintf(file, "<text x=\"%.0f\" y=\"%u\">", x, y);
	for (; *string; string++) {
		switch (*string) {
		case '<':
			fputs("&lt;", file);
			break;
		case '&':
			fputs("&amp;", file);
			break;
		default:
			fputc((unsigned char)*string < 0x20 ? '?' : *string, file);
			break;
		}
	}
	fputs("</text>\n", file);
}

static void bar(FILE *file, unsigned int y, unsigned int plugin, double ratio)
{
	double one = place_px(1), end = place_px(ratio);
	char label[32];

	fprintf(file, "<rect x=\"%.1f\" y=\"%u\" width=\"%.1f\" height=\"%d\" fill=\"%s\"/>\n",
		end < one ? end : one, y - ROW_PX + 5, end < one ? one - end : end - one,
		ROW_PX - 4, colours[plugin]);
	snprintf(label, sizeof(label), "%.2f", ratio);
	text(file, NAME_PX + BARS_PX + 8, y, label);
}

/* Returns where the next table starts; file NULL: only that. */
static unsigned int draw_table(FILE *file, unsigned int y, const struct bench_table *table)
{
	y += 2 * ROW_PX;
	if (file) {
		text(file, 8, y, bench_table_title(table));
	}
	for (unsigned int m = 0; m < bench_table_size(table); m++) {
		const struct bench_metric *metric = bench_table_metric(table, m);

		for (unsigned int p = 1; p < bench_table_plugins(table); p++) {
			double ratio = bench_table_ratio(table, p, m);

			if (metric->better == BENCH_NEITHER || !(ratio > 0)) {
				continue;
			}
			y += ROW_PX;
			if (file) {
				text(file, 24, y, metric->name);
				bar(file, y, p, ratio);
			}
		}
	}
	return y;
}

int bench_tables_plot(struct bench_table *const *tables, unsigned int count, const char *path)
{
	FILE *file = fopen(path, "w");
	unsigned int height = 0;
	unsigned int y = 0;

	if (!file) {
		return -errno;
	}
	for (unsigned int i = 0; i < count; i++) {
		height = draw_table(NULL, height, tables[i]);
	}
	fprintf(file,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%u\" "
		"font-family=\"sans-serif\" font-size=\"11\">\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
		WIDTH_PX, height + ROW_PX);
	for (unsigned int i = 0; i < count; i++) {
		y = draw_table(file, y, tables[i]);
	}
	fprintf(file,
		"<line x1=\"%.1f\" y1=\"0\" x2=\"%.1f\" y2=\"%u\" stroke=\"black\"/>\n</svg>\n",
		place_px(1), place_px(1), height);
	return fclose(file) ? -EIO : 0;
}
