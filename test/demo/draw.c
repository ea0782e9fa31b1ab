/* SPDX-License-Identifier: Apache-2.0 */
#include "test/demo/draw.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
	HEAD_HEIGHT = 124,
	FOOT_HEIGHT = 40,
	RATE_BIN_NS = 20000000
};

static double ms_after_cut(const struct facts *facts, uint64_t time_ns)
{
	return (double)(time_ns - facts->cut_ns) / 1e6;
}

static void span_find(struct picture *picture)
{
	const struct timeline *timeline = picture->timeline;
	const struct facts *facts = picture->facts;
	uint32_t count = timeline->iteration_count;

	picture->from_ns = timeline->last_ns;
	picture->to_ns = timeline->last_ns;
	if (count > 0) {
		const struct iteration *last = &timeline->iterations[count - 1];

		picture->from_ns = timeline->iterations[0].start_ns;
		picture->to_ns = last->done ? last->end_ns : timeline->last_ns;
	}
	if (!facts->iteration) {
		return;
	}
	uint64_t last_ns = facts->cut_ns;

	last_ns = facts->noticed_ns > last_ns ? facts->noticed_ns : last_ns;
	last_ns = facts->replayed_ns > last_ns ? facts->replayed_ns : last_ns;
	uint64_t pad_ns = (last_ns - facts->cut_ns) / 3 + 40000000;

	picture->lens_from_ns = facts->cut_ns - pad_ns;
	picture->lens_to_ns = last_ns + 2 * pad_ns;
	if (facts->cut_ns - picture->from_ns < pad_ns) {
		picture->lens_from_ns = picture->from_ns;
	}
	if (picture->lens_to_ns > picture->to_ns) {
		picture->lens_to_ns = picture->to_ns;
	}
}

static void rate_find(struct picture *picture)
{
	const struct timeline *timeline = picture->timeline;

	picture->rate_max = picture->demo->rate_mbps > 0 ? picture->demo->rate_mbps : 1;
	for (uint32_t rail = 0; rail < timeline->rail_count; rail++) {
		const struct series *series = &timeline->series[picture->demo->host][rail];

		for (uint64_t at = picture->from_ns; at < picture->to_ns; at += RATE_BIN_NS) {
			double rate = series_rate_mbps(series, at, at + RATE_BIN_NS);

			picture->rate_max = rate > picture->rate_max ? rate : picture->rate_max;
		}
	}
	picture->rate_max *= 1.08;
}

static const char *title_find(const struct picture *picture, char *text, size_t cap)
{
	const struct demo *demo = picture->demo;
	const struct facts *facts = picture->facts;

	if (!facts->passed) {
		snprintf(text, cap, "Rail %u of host %u got a fault, and the job FAILED",
			 demo->rail, demo->host);
	} else if (!facts->iteration) {
		snprintf(text, cap, "No rail failed while an all-reduce was running");
	} else if (demo->is_cut && !facts->missing) {
		snprintf(text, cap,
			 "Rail %u of host %u %s in the middle of a message, and the job went on",
			 demo->rail, demo->host,
			 strncmp(demo->rule, "cut ", 4) == 0 ? "was cut" : "failed");
	} else {
		snprintf(text, cap, "Rail %u of host %u got a fault, and the job went on",
			 demo->rail, demo->host);
	}
	return text;
}

static void subtitle_first(const struct picture *picture, double y)
{
	const struct timeline *timeline = picture->timeline;
	const struct facts *facts = picture->facts;
	char rate[48] = "of unlimited rate";
	char took[224] = "";

	if (picture->demo->rate_mbps > 0) {
		snprintf(rate, sizeof(rate), "of %g MB/s", picture->demo->rate_mbps);
	}
	if (facts->noticed_ns && facts->replayed_ns) {
		snprintf(took, sizeof(took),
			 " The loss was noticed after %.0f ms; by %.0f ms what was missing, %.2f "
			 "MB, had been sent again.",
			 ms_after_cut(facts, facts->noticed_ns),
			 ms_after_cut(facts, facts->replayed_ns),
			 (double)facts->replayed_bytes / 1e6);
	}
	svg_text(picture->file, (struct point){32, y}, "sub",
		 "%u hosts with %u rails %s each, %u all-reduces of %.0f MB.%s",
		 timeline->host_count, timeline->rail_count, rate, timeline->iteration_count,
		 timeline->iteration_count ? (double)timeline->iterations[0].size_bytes / 1e6 : 0.0,
		 took);
}

static void subtitle_second(const struct picture *picture, double y)
{
	const struct facts *facts = picture->facts;
	const char *verdict =
		facts->passed ? "Every element was right." : "Not every element was right.";
	struct point at = {32, y};

	if (facts->ratio > 0 && picture->demo->is_cut) {
		svg_text(picture->file, at, "sub",
			 "%s An all-reduce took %.0f ms before and %.0f ms after, %.2f times as "
			 "long; %u of %u rails would allow %.2f.",
			 verdict, facts->healthy_ms, facts->degraded_ms, facts->ratio,
			 picture->timeline->rail_count - 1, picture->timeline->rail_count,
			 facts->ideal);
	} else {
		svg_text(picture->file, at, "sub", "%s", verdict);
	}
}

static bool is_back(const struct facts *facts)
{
	return facts->back_ns && facts->recovered_ms > 0;
}

static void subtitle_third(const struct picture *picture, double y)
{
	const struct facts *facts = picture->facts;

	if (is_back(facts)) {
		svg_text(picture->file, (struct point){32, y}, "sub",
			 "The rail carried data again %.0f ms after it had been mended; since then "
			 "an all-reduce has taken %.0f ms.",
			 (double)(facts->back_ns - facts->healed_ns) / 1e6, facts->recovered_ms);
	}
}

int draw_page(FILE *file, const struct demo *demo, const struct timeline *timeline,
	      const struct facts *facts)
{
	struct picture picture = {.file = file, .demo = demo, .timeline = timeline, .facts = facts};
	char title[256];

	span_find(&picture);
	rate_find(&picture);
	double top = HEAD_HEIGHT + (is_back(facts) ? 22 : 0);
	double zoom_top = top + overview_height(&picture);
	double foot_top = zoom_top + zoom_height(&picture);

	title_find(&picture, title, sizeof(title));
	svg_begin(file, PAGE_WIDTH, foot_top + FOOT_HEIGHT, title);
	svg_text(file, (struct point){32, 46}, "title", "%s", title);
	subtitle_first(&picture, 74);
	subtitle_second(&picture, 96);
	subtitle_third(&picture, 118);
	overview_draw(&picture, top);
	zoom_draw(&picture, zoom_top);
	svg_text(file, (struct point){32, foot_top + 22}, "note",
		 "From the byte counters of the emulated network cards, read every 5 ms, and the "
		 "plugin's events. In the gaps the ranks check every element. 1 MB = 1 000 000 "
		 "bytes.");
	svg_end(file);
	return ferror(file) ? -EIO : 0;
}
