/* SPDX-License-Identifier: Apache-2.0 */
#include "test/demo/draw.h"
#include "test/demo/scale.h"

#include <math.h>

/* One row a rail over the whole run, below a strip that names the iterations. */

enum {
	HEADER = 24,
	STRIP = 40,
	ROW_GAP = 8,
	AXIS = 44,
	BINS = 424
};

static double row_height(const struct picture *picture)
{
	uint32_t rails = picture->timeline->rail_count;

	return rails <= 4 ? 46 : rails <= 8 ? 28 : 16;
}

static double rows_height(const struct picture *picture)
{
	return picture->timeline->rail_count * (row_height(picture) + ROW_GAP);
}

double overview_height(const struct picture *picture)
{
	return HEADER + STRIP + rows_height(picture) + AXIS;
}

static struct scale time_scale(const struct picture *picture)
{
	return (struct scale){.value_to = (double)(picture->to_ns - picture->from_ns),
			      .at_from = PLOT_LEFT,
			      .at_to = PLOT_RIGHT};
}

static double x_at(const struct picture *picture, uint64_t time_ns)
{
	struct scale scale = time_scale(picture);

	return scale_at(&scale,
			time_ns > picture->from_ns ? (double)(time_ns - picture->from_ns) : 0);
}

static void header_draw(const struct picture *picture, double top)
{
	FILE *file = picture->file;
	double y = top + 12;
	double x = PLOT_RIGHT - 384;

	svg_text(file, (struct point){32, y}, "head", "Host %u: what each rail sent, in MB/s",
		 picture->demo->host);
	svg_rect(file, (struct box){x, y - 10, 18, 11}, "healthy");
	svg_text(file, (struct point){x + 24, y}, "note", "healthy rail");
	if (picture->facts->iteration) {
		svg_rect(file, (struct box){x + 112, y - 10, 18, 11}, "faulty");
		svg_text(file, (struct point){x + 136, y}, "note", "rail with the fault");
	}
	svg_line(file, (struct point){x + 264, y - 4}, (struct point){x + 282, y - 4}, "peer");
	svg_text(file, (struct point){x + 288, y}, "note", "the other hosts");
}

static void iterations_draw(const struct picture *picture, double top)
{
	const struct timeline *timeline = picture->timeline;
	FILE *file = picture->file;

	for (uint32_t i = 0; i < timeline->iteration_count; i++) {
		const struct iteration *iteration = &timeline->iterations[i];
		double left = x_at(picture, iteration->start_ns);
		double right = x_at(picture, iteration->done ? iteration->end_ns : picture->to_ns);
		double mid = (left + right) / 2;
		const char *classes =
			iteration == picture->facts->iteration ? "mid strong red" : "mid strong";

		svg_rect(file, (struct box){left, top, right - left, STRIP + rows_height(picture)},
			 "band");
		if (right - left > 16) {
			svg_text(file, (struct point){mid, top + 16}, classes, "%u", i + 1);
		}
		if (right - left > 32 && iteration->done) {
			svg_text(file, (struct point){mid, top + 32}, "note mid", "%.0f",
				 iteration_ms(iteration));
		}
	}
	svg_text(file, (struct point){PLOT_LEFT - 12, top + 16}, "end", "all-reduce");
	svg_text(file, (struct point){PLOT_LEFT - 12, top + 32}, "note end", "took, ms");
}

/** Points of the send rate of one rail of one host; returns how many. */
static size_t rate_points(const struct picture *picture, uint32_t host, uint32_t rail,
			  const struct scale *scale, struct point points[BINS])
{
	const struct series *series = &picture->timeline->series[host][rail];
	uint64_t span_ns = picture->to_ns - picture->from_ns;

	for (size_t i = 0; i < BINS; i++) {
		uint64_t a = picture->from_ns + span_ns * i / BINS;
		uint64_t b = picture->from_ns + span_ns * (i + 1) / BINS;

		points[i].x = PLOT_LEFT + (PLOT_RIGHT - PLOT_LEFT) * ((double)i + 0.5) / BINS;
		points[i].y = scale_at(scale, series_rate_mbps(series, a, b));
	}
	return BINS;
}

static void row_draw(const struct picture *picture, uint32_t rail, double top)
{
	static struct point points[BINS];
	static struct point floor_points[BINS];
	double height = row_height(picture);
	struct scale scale = {.value_to = picture->rate_max, .at_from = top + height, .at_to = top};
	FILE *file = picture->file;
	bool is_faulty = picture->facts->iteration && rail == picture->demo->rail;
	size_t count = rate_points(picture, picture->demo->host, rail, &scale, points);

	for (size_t i = 0; i < count; i++) {
		floor_points[i] = (struct point){points[i].x, top + height};
	}
	svg_area(file, points, floor_points, count, is_faulty ? "#d55e00" : "#0072b2");
	for (uint32_t host = 0; host < picture->timeline->host_count; host++) {
		if (host != picture->demo->host) {
			count = rate_points(picture, host, rail, &scale, points);
			svg_path(file, points, count, "peer");
		}
	}
	svg_line(file, (struct point){PLOT_LEFT, top + height},
		 (struct point){PLOT_RIGHT, top + height}, "axis");
	svg_text(file, (struct point){PLOT_LEFT - 46, top + height / 2 + 5},
		 is_faulty ? "end strong red" : "end strong", "rail %u", rail);
	if (height >= 40) {
		double step = scale_step(picture->rate_max, 4);
		double value = floor(picture->rate_max / step) * step;

		svg_text(file, (struct point){PLOT_LEFT - 6, top + height}, "tick end", "0");
		svg_text(file, (struct point){PLOT_LEFT - 6, scale_at(&scale, value) + 4},
			 "tick end", "%g", value);
	}
}

static void axis_draw(const struct picture *picture, double y)
{
	double span_s = (double)(picture->to_ns - picture->from_ns) / 1e9;
	double step = scale_step(span_s, 12);
	struct scale scale = {.value_to = span_s, .at_from = PLOT_LEFT, .at_to = PLOT_RIGHT};
	FILE *file = picture->file;

	for (int i = 0; span_s > 0 && i * step <= span_s; i++) {
		double x = scale_at(&scale, i * step);

		svg_line(file, (struct point){x, y}, (struct point){x, y + 4}, "axis");
		svg_text(file, (struct point){x, y + 17}, "tick mid", "%g%s", i * step,
			 i ? "" : " s");
	}
}

/** The cut and the mending; the latter is named, where the rail's row is empty. */
static void moments_draw(const struct picture *picture, double top, double bottom)
{
	const struct facts *facts = picture->facts;
	double row = top + picture->demo->rail * (row_height(picture) + ROW_GAP);
	FILE *file = picture->file;

	if (!facts->iteration) {
		return;
	}
	double x = x_at(picture, facts->cut_ns);

	svg_line(file, (struct point){x, top - 4}, (struct point){x, bottom}, "cut");
	if (facts->healed_ns > facts->cut_ns) {
		x = x_at(picture, facts->healed_ns);
		svg_line(file, (struct point){x, row - 4},
			 (struct point){x, row + row_height(picture)}, "mark");
		svg_circle(file, (struct point){x, row - 4}, 3.5, "markdot");
		svg_text(file, (struct point){x - 7, row + row_height(picture) / 2 + 4},
			 "end halo strong", "mended");
	}
}

void overview_draw(const struct picture *picture, double top)
{
	double rows_top = top + HEADER + STRIP;
	double bottom = rows_top + rows_height(picture) - ROW_GAP;
	FILE *file = picture->file;

	header_draw(picture, top);
	iterations_draw(picture, top + HEADER);
	if (picture->lens_to_ns > picture->lens_from_ns) {
		double a = x_at(picture, picture->lens_from_ns);
		double b = x_at(picture, picture->lens_to_ns);
		struct point upper[] = {{a, rows_top}, {b, rows_top}};
		struct point lower[] = {{a, bottom + ROW_GAP}, {b, bottom + ROW_GAP}};

		svg_area(file, upper, lower, 2, "#fbe3d2");
		upper[0] = (struct point){PLOT_LEFT, bottom + AXIS + ROW_GAP};
		upper[1] = (struct point){PLOT_RIGHT, bottom + AXIS + ROW_GAP};
		svg_area(file, lower, upper, 2, "#fdf3eb");
	}
	for (uint32_t rail = 0; rail < picture->timeline->rail_count; rail++) {
		row_draw(picture, rail, rows_top + rail * (row_height(picture) + ROW_GAP));
	}
	moments_draw(picture, rows_top, bottom);
	axis_draw(picture, bottom + ROW_GAP);
}
