/* SPDX-License-Identifier: Apache-2.0 */
#include "test/bench/bench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bench_table {
	struct bench_options opt;
	char title[32];
	unsigned int metric_count;
	struct bench_metric metrics[BENCH_METRICS_MAX]; /* names; every plugin has the same */
	unsigned int rounds[BENCH_PLUGINS_MAX];
	double values[BENCH_PLUGINS_MAX][BENCH_METRICS_MAX][BENCH_ROUNDS_MAX];
};

struct bench_table *bench_table_create(const struct bench_options *opt, const char *title)
{
	struct bench_table *table = calloc(1, sizeof(*table));

	if (table) {
		table->opt = *opt;
		snprintf(table->title, sizeof(table->title), "%s", title);
	}
	return table;
}

void bench_table_destroy(struct bench_table *table)
{
	free(table);
}

void bench_table_add(struct bench_table *table, unsigned int plugin,
		     const struct bench_shared *shared)
{
	unsigned int round = table->rounds[plugin]++;

	table->metric_count = shared->metric_count;
	memcpy(table->metrics, shared->metrics, sizeof(table->metrics));
	for (unsigned int m = 0; m < shared->metric_count; m++) {
		table->values[plugin][m][round] = shared->metrics[m].value;
	}
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a;
	double y = *(const double *)b;

	return (x > y) - (x < y);
}

double bench_table_median(const struct bench_table *table, unsigned int plugin, unsigned int m)
{
	double sorted[BENCH_ROUNDS_MAX];
	unsigned int count = table->rounds[plugin];

	if (!count) {
		return 0;
	}
	memcpy(sorted, table->values[plugin][m], count * sizeof(sorted[0]));
	qsort(sorted, count, sizeof(sorted[0]), by_value);
	return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

/* Of each round's ratio, so that a change of the machine's load between rounds cancels. */
double bench_table_ratio(const struct bench_table *table, unsigned int plugin, unsigned int m)
{
	double sorted[BENCH_ROUNDS_MAX];
	unsigned int count = 0;

	for (unsigned int r = 0; r < table->rounds[plugin]; r++) {
		if (table->values[0][m][r] > 0) {
			sorted[count++] = table->values[plugin][m][r] / table->values[0][m][r];
		}
	}
	if (!count) {
		return 0;
	}
	qsort(sorted, count, sizeof(sorted[0]), by_value);
	return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

bool bench_table_print(const struct bench_table *table)
{
	bool sane = table->metric_count > 0;

	printf("\n%s\n%-38s %-8s", table->title, "median of rounds", "unit");
	for (unsigned int p = 0; p < table->opt.plugin_count; p++) {
		printf(" %12s %d %7s", "plugin", (int)p, p ? "ratio" : "");
	}
	printf("\n");
	for (unsigned int m = 0; m < table->metric_count; m++) {
		const struct bench_metric *metric = &table->metrics[m];

		printf("%-38s %-8s", metric->name, metric->unit);
		for (unsigned int p = 0; p < table->opt.plugin_count; p++) {
			double value = bench_table_median(table, p, m);

			printf(" %14.2f", value);
			if (p && bench_table_median(table, 0, m) > 0) {
				printf(" %7.2f", bench_table_ratio(table, p, m));
			} else {
				printf(" %7s", "");
			}
			if (metric->better != BENCH_NEITHER && !(value > 0)) {
				sane = false;
				fprintf(stderr, "net_bench: %s of plugin %u is %g\n", metric->name,
					p, value);
			}
		}
		printf("\n");
	}
	return sane;
}

static void json_values(FILE *file, const struct bench_table *table, unsigned int m)
{
	for (unsigned int p = 0; p < table->opt.plugin_count; p++) {
		fprintf(file, "%s[", p ? ", " : "");
		for (unsigned int r = 0; r < table->rounds[p]; r++) {
			fprintf(file, "%s%.6g", r ? ", " : "", table->values[p][m][r]);
		}
		fprintf(file, "]");
	}
}

static void json_string(FILE *file, const char *text)
{
	fputc('"', file);
	for (; *text; text++) {
		if (*text == '"' || *text == '\\') {
			fputc('\\', file);
		}
		fputc((unsigned char)*text < 0x20 ? '?' : *text, file);
	}
	fputc('"', file);
}

static void json_table(FILE *file, const struct bench_table *table)
{
	fprintf(file, "{\"title\": ");
	json_string(file, table->title);
	fprintf(file, ",\n \"plugins\": [");
	for (unsigned int p = 0; p < table->opt.plugin_count; p++) {
		fprintf(file, p ? ", " : "");
		json_string(file, table->opt.plugins[p]);
	}
	fprintf(file, "],\n \"metrics\": [");
	for (unsigned int m = 0; m < table->metric_count; m++) {
		const struct bench_metric *metric = &table->metrics[m];

		fprintf(file, "%s\n  {\"name\": ", m ? "," : "");
		json_string(file, metric->name);
		fprintf(file, ", \"unit\": \"%s\", \"better\": \"%s\", \"rounds\": [", metric->unit,
			metric->better == BENCH_LESS   ? "less"
			: metric->better == BENCH_MORE ? "more"
						       : "neither");
		json_values(file, table, m);
		fprintf(file, "]}");
	}
	fprintf(file, "]}");
}

int bench_tables_json(struct bench_table *const *tables, unsigned int count, const char *path)
{
	FILE *file = fopen(path, "w");

	if (!file) {
		return -errno;
	}
	fprintf(file, "[");
	for (unsigned int i = 0; i < count; i++) {
		fprintf(file, i ? ",\n" : "");
		json_table(file, tables[i]);
	}
	fprintf(file, "]\n");
	return fclose(file) ? -EIO : 0;
}

const char *bench_table_title(const struct bench_table *table)
{
	return table->title;
}

unsigned int bench_table_plugins(const struct bench_table *table)
{
	return table->opt.plugin_count;
}

unsigned int bench_table_size(const struct bench_table *table)
{
	return table->metric_count;
}

const struct bench_metric *bench_table_metric(const struct bench_table *table, unsigned int m)
{
	return &table->metrics[m];
}
