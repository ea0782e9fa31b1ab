/* SPDX-License-Identifier: Apache-2.0 */
#include "test/demo/draw.h"
#include "test/demo/scale.h"

#include <math.h>
#include <string.h>

/* What the host sent in all, stacked by rail, around the fault; callouts for its moments above. */

enum {
	HEADER = 40,
	CALLOUT = 22,
	CALLOUT_COUNT = 3,
	PLOT = 230,
	AXIS = 46,
	BINS = 530
};

/** The last point stands at the right end. */
static const double BIN_WIDTH = (PLOT_RIGHT - PLOT_LEFT) / (BINS - 1.0);

static bool is_shown(const struct picture *picture)
{
	return picture->lens_to_ns > picture->lens_from_ns;
}

double zoom_height(const struct picture *picture)
{
	return is_shown(picture) ? HEADER + CALLOUT * CALLOUT_COUNT + 10 + PLOT + AXIS : 0;
}

static struct scale time_scale(const struct picture *picture)
{
	return (struct scale){.value_to = (double)(picture->lens_to_ns - picture->lens_from_ns),
			      .at_from = PLOT_LEFT,
			      .at_to = PLOT_RIGHT};
}

static double x_at(const struct picture *picture, uint64_t time_ns)
{
	struct scale scale = time_scale(picture);

	return scale_at(&scale, time_ns > picture->lens_from_ns
					? (double)(time_ns - picture->lens_from_ns)
					: 0);
}

static double ms_at(const struct picture *picture, uint64_t time_ns)
{
	return time_ns >= picture->facts->cut_ns
		       ? (double)(time_ns - picture->facts->cut_ns) / 1e6
		       : -(double)(picture->facts->cut_ns - time_ns) / 1e6;
}

static struct scale rate_scale(const struct picture *picture, double bottom)
{
	return (struct scale){.value_to = picture->rate_max * picture->timeline->rail_count,
			      .at_from = bottom,
			      .at_to = bottom - PLOT};
}

/** Add one rail's rate to the heights in `rates` (MB/s), bin by bin, about 4 ms wide. */
static void rates_add(const struct picture *picture, uint32_t rail, double rates[BINS])
{
	const struct series *series = &picture->timeline->series[picture->demo->host][rail];
	uint64_t span_ns = picture->lens_to_ns - picture->lens_from_ns;
	uint64_t half_ns = 2500000;

	for (size_t i = 0; i < BINS; i++) {
		uint64_t at = picture->lens_from_ns + span_ns * i / (BINS - 1);

		rates[i] += series_rate_mbps(series, at > half_ns ? at - half_ns : 0, at + half_ns);
	}
}

/** Two blues in turns, and the faulty rail on top in vermillion. */
static const char *stack_colour(uint32_t level, uint32_t levels)
{
	static const char *const blues[] = {"#0072b2", "#3391c7"};

	return level + 1 == levels ? "#d55e00" : blues[level % 2];
}

/** The edges of the stack, the floor first; and the rail above each edge. */
struct stack {
	struct point edges[TIMELINE_RAILS_MAX + 1][BINS];
	uint32_t rails[TIMELINE_RAILS_MAX];
	uint32_t count;
};

static void stack_build(const struct picture *picture, double bottom, struct stack *stack)
{
	double rates[BINS] = {0};
	struct scale scale = rate_scale(picture, bottom);
	uint32_t faulty = picture->demo->rail;

	stack->count = picture->timeline->rail_count;
	for (size_t i = 0; i < BINS; i++) {
		stack->edges[0][i] = (struct point){PLOT_LEFT + BIN_WIDTH * (double)i, bottom};
	}
	/* The faulty one last, so that it lies on top and nothing moves when it goes. */
	for (uint32_t level = 0; level < stack->count; level++) {
		bool is_top = level + 1 == stack->count;

		stack->rails[level] = is_top ? faulty : level + (level >= faulty ? 1 : 0);
		rates_add(picture, stack->rails[level], rates);
		for (size_t i = 0; i < BINS; i++) {
			stack->edges[level + 1][i].x = stack->edges[0][i].x;
			stack->edges[level + 1][i].y = scale_at(&scale, rates[i]);
		}
	}
}

/** Heights that are one rail's over the whole of a stretch of bins; y grows downwards. */
struct room {
	double floor;
	double ceiling; /**< below the floor when there are none */
};

static struct room room_of(const struct stack *stack, uint32_t level, size_t from, size_t to)
{
	struct room room = {.floor = HUGE_VAL, .ceiling = -HUGE_VAL};

	for (size_t i = from; i < to; i++) {
		room.floor = fmin(room.floor, stack->edges[level][i].y);
		room.ceiling = fmax(room.ceiling, stack->edges[level + 1][i].y);
	}
	return room;
}

/** The least room of any rail over a stretch of bins. */
static double least_room(const struct stack *stack, size_t from, size_t to)
{
	double least = PLOT;

	for (uint32_t level = 0; level < stack->count; level++) {
		struct room room = room_of(stack, level, from, to);

		least = fmin(least, room.floor - room.ceiling);
	}
	return least;
}

/** Name the rails, all in one column, where the one with the least room has most. */
static void names_draw(const struct picture *picture, const struct stack *stack)
{
	enum {
		WIDTH = 24 /* bins a name takes */
	};
	double best = 0;
	size_t at = 0;

	for (size_t i = 2; i + WIDTH < BINS; i += 2) {
		double least = least_room(stack, i, i + WIDTH);

		if (least > best + 0.5) {
			best = least;
			at = i;
		}
	}
	for (uint32_t level = 0; best >= 12 && level < stack->count; level++) {
		struct room room = room_of(stack, level, at, at + WIDTH);
		struct point mid = {stack->edges[0][at + WIDTH / 2].x,
				    (room.floor + room.ceiling) / 2 + 4};

		svg_text(picture->file, mid, "onfill mid", "rail %u", stack->rails[level]);
	}
}

static void stack_draw(const struct picture *picture, double bottom)
{
	static struct stack stack;

	stack_build(picture, bottom, &stack);
	for (uint32_t level = 0; level < stack.count; level++) {
		svg_area(picture->file, stack.edges[level + 1], stack.edges[level], BINS,
			 stack_colour(level, stack.count));
	}
	names_draw(picture, &stack);
}

static void boundaries_draw(const struct picture *picture, double bottom)
{
	const struct timeline *timeline = picture->timeline;

	for (uint32_t i = 0; i < timeline->iteration_count; i++) {
		const struct iteration *iteration = &timeline->iterations[i];
		uint64_t end_ns = iteration->done ? iteration->end_ns : timeline->last_ns;

		if (end_ns <= picture->lens_from_ns || iteration->start_ns >= picture->lens_to_ns) {
			continue;
		}
		double left = x_at(picture, iteration->start_ns);
		double right = x_at(picture, end_ns);

		svg_rect(picture->file, (struct box){left, bottom - PLOT, right - left, PLOT},
			 "band");
		if (right - left > 90) {
			svg_text(picture->file,
				 (struct point){(left + right) / 2, bottom - PLOT + 16}, "note mid",
				 "all-reduce %u", i + 1);
		}
	}
}

static void rate_axis_draw(const struct picture *picture, double bottom)
{
	struct scale rate = rate_scale(picture, bottom);
	double step = scale_step(rate.value_to, 5);
	FILE *file = picture->file;

	for (int i = 0; i * step <= rate.value_to; i++) {
		double y = scale_at(&rate, i * step);

		svg_line(file, (struct point){PLOT_LEFT, y}, (struct point){PLOT_RIGHT, y}, "grid");
		svg_text(file, (struct point){PLOT_LEFT - 8, y + 4}, "tick end", "%g", i * step);
	}
	svg_text(file, (struct point){PLOT_LEFT - 8, bottom - PLOT - 8}, "tick end", "MB/s");
}

static void time_axis_draw(const struct picture *picture, double bottom)
{
	double from_ms = ms_at(picture, picture->lens_from_ns);
	double to_ms = ms_at(picture, picture->lens_to_ns);
	struct scale time = {from_ms, to_ms, PLOT_LEFT, PLOT_RIGHT};
	double step = scale_step(to_ms - from_ms, 12);
	FILE *file = picture->file;

	svg_line(file, (struct point){PLOT_LEFT, bottom}, (struct point){PLOT_RIGHT, bottom},
		 "axis");
	for (double ms = ceil(from_ms / step) * step; ms <= to_ms; ms += step) {
		double x = scale_at(&time, ms);

		svg_line(file, (struct point){x, bottom}, (struct point){x, bottom + 4}, "axis");
		svg_text(file, (struct point){x, bottom + 17}, "tick mid", "%g",
			 fabs(ms) < step / 2 ? 0 : ms);
	}
	svg_text(file, (struct point){(PLOT_LEFT + PLOT_RIGHT) / 2.0, bottom + 36}, "note mid",
		 "milliseconds after the fault");
}

/** Say why nothing moves between the cut and its being noticed, where that is so. */
static void pause_draw(const struct picture *picture, double bottom)
{
	const struct facts *facts = picture->facts;
	double left = x_at(picture, facts->cut_ns);
	double right = x_at(picture, facts->noticed_ns);
	uint64_t quarter_ns = (facts->noticed_ns - facts->cut_ns) / 4;
	double rate = 0;

	if (!facts->noticed_ns || right - left < 300) {
		return;
	}
	for (uint32_t rail = 0; rail < picture->timeline->rail_count; rail++) {
		rate += series_rate_mbps(&picture->timeline->series[picture->demo->host][rail],
					 facts->cut_ns + quarter_ns,
					 facts->noticed_ns - quarter_ns);
	}
	if (rate < picture->rate_max * picture->timeline->rail_count / 20) {
		svg_text(picture->file, (struct point){(left + right) / 2, bottom - PLOT / 2.0},
			 "note mid", "waiting for what was under way on the lost rail");
	}
}

/** A moment of the fault, with the words that go with it. */
struct callout {
	double x;
	char text[224];
};

/** Rough width of a line of the page's text. */
static double text_width(const char *text)
{
	return 7.7 * (double)strlen(text);
}

static size_t callouts_find(const struct picture *picture, struct callout list[CALLOUT_COUNT])
{
	const struct facts *facts = picture->facts;
	size_t count = 0;

	list[count].x = x_at(picture, facts->cut_ns);
	snprintf(list[count].text, sizeof(list[0].text), "0 ms: %s", picture->demo->rule);
	count++;
	if (facts->noticed_ns) {
		list[count].x = x_at(picture, facts->noticed_ns);
		snprintf(list[count].text, sizeof(list[0].text), "%.1f ms: noticed (%s)",
			 ms_at(picture, facts->noticed_ns), facts->cause);
		count++;
	}
	if (facts->replayed_ns) {
		list[count].x = x_at(picture, facts->replayed_ns);
		snprintf(list[count].text, sizeof(list[0].text),
			 "%.1f ms: %.2f MB sent again over other rails",
			 ms_at(picture, facts->replayed_ns), (double)facts->replayed_bytes / 1e6);
		count++;
	}
	return count;
}

/**
 * Each moment has a line through the plot and its words on a row of their own. Words stand right of
 * their line with the earliest on top, or all left of it with the latest on top where there is no
 * room: either way no line crosses words.
 */
static void callouts_draw(const struct picture *picture, double top)
{
	struct callout list[CALLOUT_COUNT];
	size_t count = callouts_find(picture, list);
	double bottom = top + CALLOUT * CALLOUT_COUNT + 10 + PLOT;
	bool is_left = false;

	for (size_t i = 0; i < count; i++) {
		is_left |= list[i].x + 10 + text_width(list[i].text) > PAGE_WIDTH - 16;
	}
	for (size_t i = 0; i < count; i++) {
		size_t row = CALLOUT_COUNT - (is_left ? i + 1 : count - i);
		double y = top + (double)row * CALLOUT + 10;
		struct point dot = {list[i].x, y};

		svg_line(picture->file, dot, (struct point){dot.x, bottom}, i ? "mark" : "cut");
		svg_circle(picture->file, dot, 4, i ? "markdot" : "cutdot");
		svg_text(picture->file, (struct point){dot.x + (is_left ? -10 : 10), y + 4},
			 is_left ? "end" : "start", "%s", list[i].text);
	}
}

void zoom_draw(const struct picture *picture, double top)
{
	double callouts_top = top + HEADER;
	double bottom = callouts_top + CALLOUT * CALLOUT_COUNT + 10 + PLOT;

	if (!is_shown(picture)) {
		return;
	}
	svg_text(picture->file, (struct point){32, top + 22}, "head",
		 "Host %u: all it sent, by rail, around the fault", picture->demo->host);
	boundaries_draw(picture, bottom);
	rate_axis_draw(picture, bottom);
	stack_draw(picture, bottom);
	time_axis_draw(picture, bottom);
	pause_draw(picture, bottom);
	callouts_draw(picture, callouts_top);
}
