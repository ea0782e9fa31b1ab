/* SPDX-License-Identifier: Apache-2.0 */
#include "test/demo/draw.h"
#include "test/demo/report.h"

#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct options {
	struct demo demo;
	const char *driver_path;
	const char *events;
	const char *samples;
	const char *json;
	const char *svg;
};

/** The run as it comes in. */
struct intake {
	struct timeline timeline;
	struct incidents incidents;
	uint32_t printed; /**< rows */
	FILE *copy;
};

static const struct argp_option option_table[] = {
	{"fault", 'f', "RULE", 0, "The fault rule the run was given", 0},
	{"rate", 'r', "MBPS", 0, "Rate of each rail, for the picture's words", 0},
	{"heal", 'h', NULL, 0, "The run was to mend the rail again", 0},
	{"driver", 'd', "FILE", 0, "The driver's summary; read when the samples end", 0},
	{"events", 'e', "PATTERN", 0, "The plugin's event files", 0},
	{"samples", 's', "FILE", 0, "Write the samples there as well", 0},
	{"json", 'j', "FILE", 0, "Write a summary", 0},
	{"svg", 'o', "FILE", 0, "Draw the run", 0},
	{0}};

static error_t option_take(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;

	switch (key) {
	case 'f':
		options->demo.rule = arg;
		break;
	case 'r':
		options->demo.rate_mbps = strtod(arg, NULL);
		break;
	case 'h':
		options->demo.is_healed = true;
		break;
	case 'd':
		options->driver_path = arg;
		break;
	case 'e':
		options->events = arg;
		break;
	case 's':
		options->samples = arg;
		break;
	case 'j':
		options->json = arg;
		break;
	case 'o':
		options->svg = arg;
		break;
	case ARGP_KEY_END:
		if (demo_rule_read(&options->demo)) {
			argp_error(state, "--fault needs a rule with host=H rail=R");
		}
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

/** Print the rows whose counters are complete: a sample was taken at their end, or none will be. */
static int rows_print(struct intake *intake, const struct options *options, bool is_over)
{
	struct timeline *timeline = &intake->timeline;
	int err = 0;

	while (intake->printed < timeline->iteration_count) {
		const struct iteration *iteration = &timeline->iterations[intake->printed];

		if (!iteration->done || (!is_over && timeline->last_ns < iteration->end_ns)) {
			break;
		}
		if (intake->printed == 0) {
			report_header(timeline, &options->demo);
		}
		err = incidents_load(&intake->incidents, options->events);
		if (err) {
			break;
		}
		report_row(timeline, &options->demo, intake->printed++, &intake->incidents);
	}
	return err;
}

static bool is_mark(const char *line)
{
	return strncmp(line, "mark,", 5) == 0;
}

static int intake_read(struct intake *intake, const struct options *options, FILE *file)
{
	char line[512];
	int err = 0;

	while (!err && fgets(line, sizeof(line), file)) {
		if (intake->copy) {
			fputs(line, intake->copy);
		}
		/* All rails of a moment come before the next mark. */
		if (is_mark(line)) {
			err = rows_print(intake, options, false);
		}
		if (!err) {
			err = timeline_line(&intake->timeline, line);
		}
		if (err) {
			fprintf(stderr, "timeline: %s: %s\n", strerror(-err), line);
		}
	}
	if (!err) {
		err = rows_print(intake, options, true);
	}
	return err ? err : incidents_load(&intake->incidents, options->events);
}

/** The whole file as a string, "" when there is none. */
static char *file_text(const char *path)
{
	FILE *file = fopen(path, "r");
	char *text = NULL;
	size_t cap = 0;

	if (file) {
		if (getdelim(&text, &cap, '\0', file) < 0) {
			free(text);
			text = NULL;
		}
		fclose(file);
	}
	return text ? text : calloc(1, 1);
}

static int results_write(const struct options *options, const struct timeline *timeline,
			 const struct facts *facts)
{
	int err = 0;

	if (options->json) {
		err = report_json(options->json, facts, &options->demo, timeline);
	}
	if (!err && options->svg) {
		FILE *file = fopen(options->svg, "w");

		if (!file) {
			return -errno;
		}
		err = draw_page(file, &options->demo, timeline, facts);
		if (fclose(file) && !err) {
			err = -EIO;
		}
	}
	return err;
}

static int run(struct options *options, struct intake *intake)
{
	struct facts facts;
	int err = intake_read(intake, options, stdin);
	char *driver = file_text(options->driver_path);

	if (!driver) {
		return -ENOMEM;
	}
	options->demo.driver = driver;
	if (!err) {
		facts_find(&facts, &options->demo, &intake->timeline, &intake->incidents);
		report_facts(&facts, &options->demo);
		err = results_write(options, &intake->timeline, &facts);
	}
	if (!err && facts.missing) {
		err = -ECANCELED;
	}
	free(driver);
	return err;
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
		option_table,
		option_take,
		NULL,
		"Read a run's samples (braid_driver --samples) from standard input while it goes "
		"on: print a row an iteration, then what the run shows, and draw it.\v"
		"Exit status: 0 if every element was right and the fault hit a running "
		"all-reduce, else 1.",
		NULL,
		NULL,
		NULL};
	static struct intake intake;
	struct options options = {
		.demo = {.rule = "", .driver = ""}, .driver_path = "", .events = ""};
	int err;

	argp_parse(&argp, argc, argv, 0, NULL, &options);
	if (options.samples) {
		intake.copy = fopen(options.samples, "w");
		if (!intake.copy) {
			fprintf(stderr, "timeline: %s: %s\n", options.samples, strerror(errno));
			return 1;
		}
	}
	err = run(&options, &intake);
	if (err && err != -ECANCELED) {
		fprintf(stderr, "timeline: %s\n", strerror(-err));
	}
	if (intake.copy && fclose(intake.copy)) {
		fprintf(stderr, "timeline: %s: %s\n", options.samples, strerror(errno));
		err = -EIO;
	}
	incidents_clear(&intake.incidents);
	timeline_clear(&intake.timeline);
	return err ? 1 : 0;
}
