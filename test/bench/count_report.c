/* SPDX-License-Identifier: Apache-2.0 */
#include "test/bench/bench.h"
#include "test/bench/count.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The side that starts callgrind and reads what it wrote. */

enum {
	TOP_FNS = 24,
	EXTRA_MOST = 48,
};

/** [plugin]: everything one plugin needed. */
struct counted {
	struct count_sum sums[COUNT_SIZES][COUNT_BURSTS][COUNT_KIND_COUNT];
};

static double per_message(uint64_t sum)
{
	return (double)sum / COUNT_MESSAGES;
}

static int read_label(const char *dir_name, const char *label, struct count_sum *sum)
{
	DIR *dir = opendir(dir_name);
	const struct dirent *entry;
	char path[512];
	int found = 0;

	while (dir && (entry = readdir(dir))) {
		if (strncmp(entry->d_name, "out.", 4) == 0) {
			snprintf(path, sizeof(path), "%s/%s", dir_name, entry->d_name);
			found += count_read(path, label, sum) == 0;
		}
	}
	if (dir) {
		closedir(dir);
	}
	if (found != 1 || sum->plugin == 0) {
		fprintf(stderr, "net_bench: %s: %d dumps, %llu instructions\n", label, found,
			(unsigned long long)sum->plugin);
		return -1;
	}
	return 0;
}

static int read_all(const struct bench_options *opt, const char *dir, struct counted *out)
{
	char label[64];
	int err = 0;

	for (int kind = 0; kind < COUNT_KIND_COUNT; kind++) {
		bool empty = kind >= COUNT_EMPTY_ISEND;

		for (int s = 0; s < (empty ? 1 : count_size_count(opt)); s++) {
			for (int b = 0; b < (empty ? 1 : count_burst_count(opt)); b++) {
				snprintf(label, sizeof(label), "%s/%u/%u", count_kind_names[kind],
					 count_sizes[s], count_bursts[b]);
				err |= read_label(dir, label, &out->sums[s][b][kind]);
			}
		}
	}
	return err;
}

static void print_cell(const struct count_sum *sum, const struct count_sum *base)
{
	printf("  %8.0f %5.2fx %6.0f", per_message(sum->plugin),
	       (double)sum->plugin / (double)base->plugin, per_message(sum->verbs));
	printf(sum->calls_extra ? " +%-4u" : "      ", sum->calls_extra);
}

/* Their share is of both, the plugin and below verbs. */
static void print_acks(const struct count_sum *sum)
{
	double share = (double)(sum->acks + sum->ack_verbs) / (double)(sum->plugin + sum->verbs);

	printf("  %8.0f %5.1f%% %6.0f      ", per_message(sum->acks), 100 * share,
	       per_message(sum->ack_verbs));
}

static void add(struct count_sum *to, const struct count_sum *from)
{
	to->plugin += from->plugin;
	to->verbs += from->verbs;
	to->acks += from->acks;
	to->ack_verbs += from->ack_verbs;
	to->calls_extra += from->calls_extra;
	for (unsigned int i = 0; i < from->fn_count; i++) {
		unsigned int k = 0;

		while (k < to->fn_count && strcmp(to->fns[k].name, from->fns[i].name) != 0) {
			k++;
		}
		if (k < to->fn_count) {
			to->fns[k].instructions += from->fns[i].instructions;
		} else if (k < COUNT_FNS_MAX) {
			to->fns[to->fn_count++] = from->fns[i];
		}
	}
}

static void print_scene(const struct bench_options *opt, const struct counted *all, int s, int b)
{
	struct count_sum totals[BENCH_PLUGINS_MAX] = {0};

	printf("\n%u bytes, %u in flight\n", count_sizes[s], count_bursts[b]);
	for (int kind = 0; kind <= COUNT_TEST_SEND; kind++) {
		printf("  %-12s", count_kind_names[kind]);
		for (unsigned int p = 0; p < opt->plugin_count; p++) {
			print_cell(&all[p].sums[s][b][kind], &all[0].sums[s][b][kind]);
			add(&totals[p], &all[p].sums[s][b][kind]);
		}
		printf("\n");
	}
	printf("  %-12s", "message");
	for (unsigned int p = 0; p < opt->plugin_count; p++) {
		print_cell(&totals[p], &totals[0]);
	}
	printf("\n  %-12s", "of it, acks");
	for (unsigned int p = 0; p < opt->plugin_count; p++) {
		print_acks(&totals[p]);
	}
	printf("\n");
}

static int by_cost(const void *a, const void *b)
{
	const struct count_fn *x = a;
	const struct count_fn *y = b;

	return (x->instructions < y->instructions) - (x->instructions > y->instructions);
}

static void print_top(const char *plugin, const struct counted *counted, int s)
{
	struct count_sum *total = calloc(1, sizeof(*total));
	uint64_t own = 0;

	if (!total) {
		return;
	}
	for (int kind = 0; kind <= COUNT_TEST_SEND; kind++) {
		add(total, &counted->sums[s][0][kind]);
	}
	qsort(total->fns, total->fn_count, sizeof(total->fns[0]), by_cost);
	printf("\n%s: instructions per message of %u bytes, one in flight, without verbs\n", plugin,
	       count_sizes[s]);
	for (unsigned int i = 0; i < total->fn_count && i < TOP_FNS; i++) {
		printf("  %8.1f  %s\n", per_message(total->fns[i].instructions),
		       total->fns[i].name);
	}
	for (unsigned int i = 0; i < total->fn_count; i++) {
		own += total->fns[i].instructions;
	}
	printf("  %8.1f  in the C library\n", per_message(total->plugin - own));
	free(total);
}

static void print_all(const struct bench_options *opt, const struct counted *all)
{
	printf("instructions per call and message inside the plugin (verbs library left out), "
	       "ratio "
	       "to the first,\ninstructions below verbs, +calls that found nothing\n");
	for (unsigned int p = 0; p < opt->plugin_count; p++) {
		printf("  plugin %u: %s\n", p, opt->plugins[p]);
	}
	for (int s = 0; s < count_size_count(opt); s++) {
		for (int b = 0; b < count_burst_count(opt); b++) {
			print_scene(opt, all, s, b);
		}
	}
	printf("\na call that finds nothing\n");
	for (int kind = COUNT_EMPTY_ISEND; kind < COUNT_KIND_COUNT; kind++) {
		printf("  %-12s", count_kind_names[kind]);
		for (unsigned int p = 0; p < opt->plugin_count; p++) {
			print_cell(&all[p].sums[0][0][kind], &all[0].sums[0][0][kind]);
		}
		printf("\n");
	}
	for (unsigned int p = 0; p < opt->plugin_count; p++) {
		print_top(opt->plugins[p], &all[p], 0);
		if (count_size_count(opt) > 1) {
			print_top(opt->plugins[p], &all[p], 1);
		}
	}
}

/* This program again, under callgrind, for one plugin. */
static int run_valgrind(const struct bench_options *opt, unsigned int p, const char *dir)
{
	char out[300];
	char api[8];
	char most[16];
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		snprintf(out, sizeof(out), "--callgrind-out-file=%s/out.%%p", dir);
		snprintf(api, sizeof(api), "%u", opt->api);
		snprintf(most, sizeof(most), "%u", opt->most);
		execlp("valgrind", "valgrind", "-q", "--tool=callgrind", "--collect-atstart=no",
		       "--compress-pos=no", out, opt->self, "--counted", dir, "--plugin",
		       opt->plugins[p], "--api", api, "--most", most, NULL);
		perror("net_bench: valgrind");
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid) {
		return -1;
	}
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

static void remove_dir(const char *dir_name)
{
	DIR *dir = opendir(dir_name);
	const struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		if (entry->d_name[0] != '.') {
			unlinkat(dirfd(dir), entry->d_name, 0);
		}
	}
	if (dir) {
		closedir(dir);
	}
	rmdir(dir_name);
}

static void record(struct bench_shared *shared, double value, const char *what, int s, int b)
{
	struct bench_metric *metric = &shared->metrics[shared->metric_count++];

	*metric = (struct bench_metric){.unit = "instr", .better = BENCH_LESS, .value = value};
	snprintf(metric->name, sizeof(metric->name), "%s, %u B, %u in flight", what, count_sizes[s],
		 count_bursts[b]);
}

static double message_cost(const struct counted *counted, int s, int b, unsigned int *extra)
{
	uint64_t sum = 0;

	for (int kind = 0; kind <= COUNT_TEST_SEND; kind++) {
		sum += counted->sums[s][b][kind].plugin;
		*extra += counted->sums[s][b][kind].calls_extra;
	}
	return per_message(sum);
}

static void fill_table(const struct bench_options *opt, struct bench_table *table, unsigned int p,
		       const struct counted *counted)
{
	struct bench_shared *shared = calloc(1, sizeof(*shared));
	unsigned int extra = 0;

	if (!shared) {
		return;
	}
	for (int s = 0; s < count_size_count(opt); s++) {
		for (int b = 0; b < count_burst_count(opt); b++) {
			for (int kind = 0; kind <= COUNT_TEST_SEND; kind++) {
				record(shared, per_message(counted->sums[s][b][kind].plugin),
				       count_kind_names[kind], s, b);
			}
			record(shared, message_cost(counted, s, b, &extra), "message", s, b);
		}
	}
	bench_table_add(table, p, shared);
	free(shared);
}

/* Calls that found nothing on a busy machine cost too, so with many there is no verdict. */
static int check_most(const struct bench_options *opt, const struct counted *counted)
{
	unsigned int extra = 0;
	double cost = message_cost(counted, 0, 0, &extra);

	if (!opt->most || cost <= opt->most) {
		return 0;
	}
	fprintf(stderr, "net_bench: %.0f instructions per message, %u are allowed%s\n", cost,
		opt->most, extra > EXTRA_MOST ? "; too busy a machine to tell" : "");
	return extra > EXTRA_MOST ? -ECANCELED : -E2BIG;
}

int bench_count_start(const struct bench_options *opt, struct bench_table *table)
{
	struct counted *all = calloc(BENCH_PLUGINS_MAX, sizeof(*all));
	int err = all ? 0 : -ENOMEM;

	for (unsigned int p = 0; !err && p < opt->plugin_count; p++) {
		char dir[] = "/tmp/net_bench.XXXXXX";

		err = mkdtemp(dir) && !run_valgrind(opt, p, dir) ? read_all(opt, dir, &all[p])
								 : -EIO;
		if (!getenv("NET_BENCH_KEEP")) {
			remove_dir(dir);
		}
		if (!err) {
			fill_table(opt, table, p, &all[p]);
		}
	}
	if (!err) {
		print_all(opt, all);
		err = check_most(opt, &all[opt->plugin_count - 1]);
	}
	free(all);
	return err;
}
