/* SPDX-License-Identifier: Apache-2.0 */
#include "include/clock.h"
#include "test/bench/bench.h"
#include "test/bench/peers.h"
#include "test/fabric/fabric_ctl.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	ROUND_MAX_S = 300,
	ROUNDS = 3,
	TABLES_MAX = 16,
};

static const char usage_text[] =
	"usage: net_bench --plugin A.so [--plugin B.so ...] [options]\n"
	"Measures NCCL net plugins side by side, two processes each, in interleaved rounds.\n"
	"  -p, --plugin FILE[,NAME=VALUE...]   a plugin that exports ncclNetPlugin_v8 or newer, "
	"and variables for it alone\n"
	"  -f, --fabric-lib DIR   folder of the software fabric's libibverbs; else real devices\n"
	"  -r, --rounds N         rounds (3; of --peers 1)\n"
	"  -c, --comms N          connections each way in the tests with several (8)\n"
	"  -a, --api N            version to use (0: the newest that the plugin has)\n"
	"  -e, --env NAME=VALUE   for the ranks, such as FABRIC_RAILS=1\n"
	"  -j, --json FILE        all values of all rounds\n"
	"  -q, --quick            few messages: is it all there?\n"
	"  -P, --plot FILE        the ratios to the first plugin, as SVG\n"
	"Instead of speed, set-up and memory:\n"
	"  -n, --count            instructions per message, under valgrind\n"
	"      --most N           ... of 8 bytes, one in flight, the last plugin: more is an "
	"error\n"
	"                         with --ring: percent that the busiest rail may carry of an even "
	"share\n"
	"                         with --slow: percent of the healthy time that a round may take\n"
	"      --growth           cost per message and set-up with 1 to 500 connections each way\n"
	"      --rails            cost per message and memory with 1 to 16 rails\n"
	"      --repair           a port fails under N connections each way (--comms): time to "
	"replay\n"
	"      --ring             both ranks send over --comms connections on all rails, rates "
	"limited\n"
	"      --slow             the same, with one rail at a tenth of its rate for a while\n"
	"      --idle             wakeups per second; more than 5 is an error\n"
	"      --peers[=N,N..]    set-up, memory, wakeups and cost per message of one process with "
	"so\n"
	"                         many peer processes, a connection each way each (1,10,100,1000)\n"
	"      --all              all of it but --ring and --slow; without plugins: those beside "
	"this program\n";

static _Noreturn void rank_main(const struct bench_options *opt, struct bench_shared *shared,
				int id)
{
	struct bench_rank rank = {.opt = opt, .shared = shared, .id = id};

	setenv("FABRIC_HOST", id ? "1" : "0", 1);
	alarm(ROUND_MAX_S);
	switch (opt->mode) {
	case BENCH_COUNT:
		bench_open(&rank);
		bench_count(&rank);
		break;
	case BENCH_GROWTH:
		bench_growth(&rank);
		break;
	case BENCH_RAILS:
		bench_rails(&rank);
		break;
	case BENCH_REPAIR:
		bench_repair(&rank);
		break;
	case BENCH_RING:
		bench_ring(&rank);
		break;
	case BENCH_SLOW:
		bench_slow(&rank);
		break;
	case BENCH_IDLE:
		bench_idle(&rank);
		break;
	case BENCH_SPEED:
	case BENCH_PEERS: /* has its own processes */
	case BENCH_ALL:
		bench_speed(&rank);
		break;
	}
	bench_sync(&rank);
	bench_close(&rank);
	_exit(0);
}

/* Both ranks of one plugin, from start to end. */
static int run_pair(const struct bench_options *opt, struct bench_shared *shared)
{
	char dir[128];
	pid_t pids[2];
	int hold_fd;
	int err;

	memset(shared, 0, sizeof(*shared));
	err = fabric_ctl_make_dir(dir, sizeof(dir), &hold_fd); /* gone with the last of us */
	if (err) {
		return err;
	}
	setenv("FABRIC_DIR", dir, 1);
	for (int id = 0; id < 2; id++) {
		pids[id] = fork();
		if (pids[id] == 0) {
			rank_main(opt, shared, id);
		}
		if (pids[id] < 0) {
			atomic_store_explicit(&shared->failed, 1, memory_order_release);
			err = -EAGAIN;
		}
	}
	for (int id = 0; id < 2; id++) {
		int status = 0;

		if (pids[id] > 0 && waitpid(pids[id], &status, 0) == pids[id] && status != 0) {
			atomic_store_explicit(&shared->failed, 1, memory_order_release);
			fprintf(stderr, "net_bench: %s: rank %d ended with status 0x%x\n",
				opt->plugins[0], id, (unsigned int)status);
			err = -EIO;
		}
	}
	close(hold_fd);
	return err;
}

static struct bench_table *tables[TABLES_MAX];
static unsigned int table_count;

/* NULL: no memory left. The table is among those that are written at the end. */
static struct bench_table *new_table(const struct bench_options *opt, const char *title)
{
	struct bench_table *table = NULL;

	if (table_count < TABLES_MAX) {
		table = bench_table_create(opt, title);
	}
	if (table) {
		tables[table_count++] = table;
	}
	return table;
}

static int run_rounds(const struct bench_options *opt, struct bench_shared *shared,
		      const char *title)
{
	struct bench_table *table = new_table(opt, title);
	int err = table ? 0 : -ENOMEM;

	for (unsigned int round = 0; !err && round < opt->rounds; round++) {
		for (unsigned int p = 0; !err && p < opt->plugin_count; p++) {
			struct bench_options one = *opt;

			one.plugins[0] = opt->plugins[p];
			err = opt->mode == BENCH_PEERS ? peers_run(&one, shared)
						       : run_pair(&one, shared);
			if (!err) {
				bench_table_add(table, p, shared);
			}
		}
	}
	return err || bench_table_print(table) ? err : -EIO;
}

static int run_count(const struct bench_options *opt)
{
	struct bench_table *table = new_table(opt, "instructions");

	return table ? bench_count_start(opt, table) : -ENOMEM;
}

static int run_rails(const struct bench_options *opt, struct bench_shared *shared)
{
	static const char *const counts[] = {"1", "2", "4", "8", "16"};
	int err = 0;

	for (unsigned int i = 0; !err && i < sizeof(counts) / sizeof(counts[0]); i++) {
		char title[32];

		setenv("FABRIC_RAILS", counts[i], 1);
		snprintf(title, sizeof(title), "rails: %s", counts[i]);
		err = run_rounds(opt, shared, title);
	}
	return err;
}

/* Two rails, slow enough that every connection has something under way when one fails. */
static int run_repair(const struct bench_options *opt, struct bench_shared *shared)
{
	setenv("FABRIC_RAILS", "2", 1);
	setenv("FABRIC_RATE_MBPS", "400", 1);
	return run_rounds(opt, shared, "repair");
}

/* Slow enough that the rails are the limit, not the emulation. */
static int run_ring(const struct bench_options *opt, struct bench_shared *shared)
{
	setenv("FABRIC_RAILS", "4", 0);
	setenv("FABRIC_RATE_MBPS", "150", 0);
	return run_rounds(opt, shared, "ring");
}

static int run_slow(const struct bench_options *opt, struct bench_shared *shared)
{
	setenv("FABRIC_RAILS", "4", 0);
	setenv("FABRIC_RATE_MBPS", "200", 1);
	return run_rounds(opt, shared, "slow rail");
}

/* The last plugin alone: for what a plugin without failover can't do. */
static struct bench_options last_only(const struct bench_options *opt, unsigned int comm_count)
{
	struct bench_options one = *opt;

	one.plugins[0] = opt->plugins[opt->plugin_count - 1];
	one.plugin_count = 1;
	one.comm_count = comm_count;
	return one;
}

static int run_mode(const struct bench_options *opt, struct bench_shared *shared)
{
	switch (opt->mode) {
	case BENCH_COUNT:
		return opt->dump_dir ? run_pair(opt, shared) : run_count(opt);
	case BENCH_RAILS:
		return run_rails(opt, shared);
	case BENCH_REPAIR:
		return run_repair(opt, shared);
	case BENCH_RING:
		return run_ring(opt, shared);
	case BENCH_SLOW:
		return run_slow(opt, shared);
	case BENCH_GROWTH:
		return run_rounds(opt, shared, "growth");
	case BENCH_IDLE:
		return run_rounds(opt, shared, "idle");
	case BENCH_PEERS:
		return run_rounds(opt, shared, "peers");
	case BENCH_SPEED:
	case BENCH_ALL:
		break;
	}
	return run_rounds(opt, shared, "speed");
}

/* What a mode sets for itself is not for the next one. */
static int run_mode_apart(const struct bench_options *opt, struct bench_shared *shared)
{
	static const char *const names[] = {"FABRIC_RAILS", "FABRIC_RATE_MBPS"};
	enum {
		NAMES = sizeof(names) / sizeof(names[0])
	};
	char *before[NAMES];
	int err;

	for (unsigned int i = 0; i < NAMES; i++) {
		const char *value = getenv(names[i]);

		before[i] = value ? strdup(value) : NULL;
	}
	err = run_mode(opt, shared);
	for (unsigned int i = 0; i < NAMES; i++) {
		if (before[i]) {
			setenv(names[i], before[i], 1);
		} else {
			unsetenv(names[i]);
		}
		free(before[i]);
	}
	return err;
}

static int run_all_modes(const struct bench_options *opt, struct bench_shared *shared)
{
	static const enum bench_mode modes[] = {BENCH_SPEED, BENCH_GROWTH, BENCH_COUNT, BENCH_RAILS,
						BENCH_IDLE,  BENCH_REPAIR, BENCH_PEERS};
	int err = 0;

	setenv("FABRIC_RAILS", "1", 0);
	for (unsigned int i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		struct bench_options one = *opt;

		if (modes[i] == BENCH_REPAIR || modes[i] == BENCH_IDLE || modes[i] == BENCH_PEERS) {
			one = last_only(opt, modes[i] == BENCH_IDLE ? 8 : BENCH_GROWTH_COMMS);
		}
		one.rounds = modes[i] == BENCH_PEERS ? 1 : opt->rounds;
		one.mode = modes[i];
		err = run_mode_apart(&one, shared) ? -EIO : err;
	}
	return err;
}

static int number(const char *text, unsigned int least, unsigned int most, unsigned int *out)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (*end || end == text || value < least || value > most) {
		fprintf(stderr, "net_bench: '%s' is no number from %u to %u\n", text, least, most);
		return -EINVAL;
	}
	*out = (unsigned int)value;
	return 0;
}

/* "1,10,100": rising. */
static int peer_numbers(const char *text, struct bench_options *opt)
{
	unsigned int last = 0;

	opt->peer_step_count = 0;
	while (*text) {
		char *end;
		unsigned long value = strtoul(text, &end, 10);

		if (end == text || (*end && *end != ',') || value <= last || value > PEERS_MAX ||
		    opt->peer_step_count == BENCH_PEER_STEPS_MAX) {
			fprintf(stderr, "net_bench: '%s': up to %d rising numbers up to %d\n", text,
				BENCH_PEER_STEPS_MAX, PEERS_MAX);
			return -EINVAL;
		}
		last = (unsigned int)value;
		opt->peer_steps[opt->peer_step_count++] = last;
		text = *end ? end + 1 : end;
	}
	return opt->peer_step_count ? 0 : -EINVAL;
}

static int take_option(struct bench_options *opt, int key, char *arg)
{
	switch (key) {
	case 'p':
		if (opt->plugin_count == BENCH_PLUGINS_MAX) {
			return -EINVAL;
		}
		opt->plugins[opt->plugin_count++] = arg;
		return 0;
	case 'f':
		opt->fabric_lib = arg;
		return 0;
	case 'r':
		return number(arg, 1, BENCH_ROUNDS_MAX, &opt->rounds);
	case 'c':
		return number(arg, 2, BENCH_COMMS_MAX, &opt->comm_count);
	case 'a':
		return number(arg, 0, 12, &opt->api);
	case 'e':
		return putenv(arg);
	case 'j':
		opt->json = arg;
		return 0;
	case 'q':
		opt->quick = true;
		return 0;
	case 'n':
	case 'N':
		opt->mode = BENCH_COUNT;
		opt->dump_dir = key == 'N' ? arg : NULL;
		return 0;
	case 'm':
		return number(arg, 0, 1000000, &opt->most);
	case 'P':
		opt->plot = arg;
		return 0;
	case 'G':
		opt->mode = BENCH_GROWTH;
		return 0;
	case 'L':
		opt->mode = BENCH_RAILS;
		return 0;
	case 'R':
		opt->mode = BENCH_REPAIR;
		return 0;
	case 'O':
		opt->mode = BENCH_RING;
		return 0;
	case 'S':
		opt->mode = BENCH_SLOW;
		return 0;
	case 'I':
		opt->mode = BENCH_IDLE;
		return 0;
	case 'E':
		opt->mode = BENCH_PEERS;
		return arg ? peer_numbers(arg, opt) : 0;
	case 'A':
		opt->mode = BENCH_ALL;
		return 0;
	default:
		return -EINVAL;
	}
}

/* A copied folder needs no options: the plugins and the fabric lie beside this program. */
static void defaults_beside(struct bench_options *opt)
{
	static const char *const names[] = {"libsingle_rail.so", "libnccl-net-braid.so"};
	static char paths[3][4200];
	char dir[4096];
	ssize_t len = readlink("/proc/self/exe", dir, sizeof(dir) - 1);

	if (len <= 0) {
		return;
	}
	dir[len] = '\0';
	*strrchr(dir, '/') = '\0';
	for (unsigned int i = 0; i < 2 && opt->plugin_count <= i; i++) {
		snprintf(paths[i], sizeof(paths[i]), "%s/%s", dir, names[i]);
		opt->plugins[opt->plugin_count++] = paths[i];
	}
	if (!opt->fabric_lib) {
		snprintf(paths[2], sizeof(paths[2]), "%s/fabric", dir);
		opt->fabric_lib = paths[2];
	}
}

static int parse(int argc, char **argv, struct bench_options *opt)
{
	static const struct option longs[] = {{"plugin", required_argument, NULL, 'p'},
					      {"fabric-lib", required_argument, NULL, 'f'},
					      {"rounds", required_argument, NULL, 'r'},
					      {"comms", required_argument, NULL, 'c'},
					      {"api", required_argument, NULL, 'a'},
					      {"env", required_argument, NULL, 'e'},
					      {"json", required_argument, NULL, 'j'},
					      {"quick", no_argument, NULL, 'q'},
					      {"count", no_argument, NULL, 'n'},
					      {"counted", required_argument, NULL, 'N'},
					      {"most", required_argument, NULL, 'm'},
					      {"plot", required_argument, NULL, 'P'},
					      {"growth", no_argument, NULL, 'G'},
					      {"rails", no_argument, NULL, 'L'},
					      {"repair", no_argument, NULL, 'R'},
					      {"ring", no_argument, NULL, 'O'},
					      {"slow", no_argument, NULL, 'S'},
					      {"idle", no_argument, NULL, 'I'},
					      {"peers", optional_argument, NULL, 'E'},
					      {"all", no_argument, NULL, 'A'},
					      {NULL, 0, NULL, 0}};
	int key;

	while ((key = getopt_long(argc, argv, "p:f:r:c:a:e:j:P:qn", longs, NULL)) != -1) {
		if (take_option(opt, key, optarg)) {
			return -EINVAL;
		}
	}
	if (opt->mode == BENCH_ALL) {
		defaults_beside(opt);
	}
	if (opt->rounds == 0) {
		opt->rounds = opt->mode == BENCH_PEERS ? 1 : ROUNDS;
	}
	return opt->plugin_count && optind == argc ? 0 : -EINVAL;
}

/* The loader reads LD_LIBRARY_PATH at the start only, and plugins open the library by its name. */
static int restart_with_fabric(const struct bench_options *opt, char **argv)
{
	const char *old = getenv("LD_LIBRARY_PATH");
	size_t len = strlen(opt->fabric_lib);
	char path[4096];

	if (old && strncmp(old, opt->fabric_lib, len) == 0 && (!old[len] || old[len] == ':')) {
		return 0;
	}
	snprintf(path, sizeof(path), "%s%s%s", opt->fabric_lib, old ? ":" : "", old ? old : "");
	setenv("LD_LIBRARY_PATH", path, 1);
	execv("/proc/self/exe", argv);
	return -errno;
}

int main(int argc, char **argv)
{
	struct bench_options opt = {.comm_count = 8,
				    .self = argv[0],
				    .peer_steps = {1, 10, 100, 1000},
				    .peer_step_count = 4};
	struct bench_shared *shared;
	int err;

	if (parse(argc, argv, &opt)) {
		fputs(usage_text, stderr);
		return 2;
	}
	if (opt.fabric_lib && restart_with_fabric(&opt, argv)) {
		perror("net_bench: restart");
		return 1;
	}
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED) {
		perror("net_bench: mmap");
		return 1;
	}
	err = opt.mode == BENCH_ALL ? run_all_modes(&opt, shared) : run_mode(&opt, shared);
	if (opt.json) {
		err = bench_tables_json(tables, table_count, opt.json) ? -EIO : err;
	}
	if (opt.plot) {
		err = bench_tables_plot(tables, table_count, opt.plot) ? -EIO : err;
	}
	while (table_count) {
		bench_table_destroy(tables[--table_count]);
	}
	return err == -ECANCELED ? 77 : err != 0;
}
