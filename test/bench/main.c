/* SPDX-License-Identifier: Apache-2.0 */
#include "include/clock.h"
#include "test/bench/bench.h"

#include <dirent.h>
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
	QUICK_SHIFT = 4,
	ROUND_MAX_S = 300,
};

static const char usage_text[] =
	"usage: net_bench --plugin A.so [--plugin B.so ...] [options]\n"
	"Measures NCCL net plugins side by side, two processes each, in interleaved rounds.\n"
	"  -p, --plugin FILE      a plugin that exports ncclNetPlugin_v8 or newer\n"
	"  -f, --fabric-lib DIR   folder of the software fabric's libibverbs; else real devices\n"
	"  -r, --rounds N         rounds (3)\n"
	"  -c, --comms N          connections each way in the tests with several (8)\n"
	"  -a, --api N            version to use (0: the newest that the plugin has)\n"
	"  -e, --env NAME=VALUE   for the ranks, such as FABRIC_RAILS=1\n"
	"  -j, --json FILE        all values of all rounds\n"
	"  -q, --quick            few messages: is it all there?\n"
	"  -n, --count            instructions per message instead, under valgrind\n";

static void run_latency(struct bench_rank *rank)
{
	static const unsigned int sizes[] = {8, 1024, 8192, 65536};

	for (unsigned int i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		unsigned int count = 8000 >> (rank->opt->quick ? QUICK_SHIFT : 0);
		uint64_t start_ns;

		bench_ping_pong(rank, sizes[i], 100);
		bench_sync(rank);
		start_ns = clock_mono_ns();
		bench_ping_pong(rank, sizes[i], count);
		bench_record(rank, BENCH_LESS, "us",
			     (double)(clock_mono_ns() - start_ns) / 2000.0 / count,
			     "latency one way, %u B", sizes[i]);
		bench_sync(rank);
	}
}

static void run_rate(struct bench_rank *rank, unsigned int comms)
{
	static const unsigned int windows[] = {1, 2, 4, 8, 16, 32};
	unsigned int count = 16000 >> (rank->opt->quick ? QUICK_SHIFT : 0);

	count /= comms;
	for (unsigned int i = 0; i < sizeof(windows) / sizeof(windows[0]); i++) {
		unsigned int messages = windows[i] == 1 ? count / 4 : count;
		uint64_t ns;

		if (comms > 1 && windows[i] != 8) {
			continue;
		}
		ns = bench_stream(rank, 8, comms, windows[i], messages);
		bench_record(rank, BENCH_MORE, "1000/s",
			     (double)comms * messages * 1e6 / (double)ns,
			     "8 B messages, %u in flight, %u comm%s", windows[i], comms,
			     comms > 1 ? "s" : "");
	}
}

static void run_bandwidth(struct bench_rank *rank, unsigned int comms)
{
	static const unsigned int sizes[] = {64u << 10, 1u << 20, 8u << 20};

	for (unsigned int i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint64_t total = (2048ull << 20) >> (rank->opt->quick ? QUICK_SHIFT : 0);
		unsigned int count;
		uint64_t ns;

		total = total < (uint64_t)sizes[i] * 8000 ? total : (uint64_t)sizes[i] * 8000;
		count = (unsigned int)(total / sizes[i] / comms);
		count = count ? count : 1;
		if (comms > 1 && sizes[i] != 1u << 20) {
			continue;
		}
		bench_stream(rank, sizes[i], comms, 8, 8);
		ns = bench_stream(rank, sizes[i], comms, 8, count);
		bench_record(rank, BENCH_MORE, "MB/s",
			     (double)comms * count * sizes[i] * 1e3 / (double)ns,
			     "bandwidth %u KiB, 8 in flight, %u comm%s", sizes[i] >> 10, comms,
			     comms > 1 ? "s" : "");
	}
}

static void record_usage(struct bench_rank *rank, const char *what, const struct bench_usage *from,
			 const struct bench_usage *to, double parts)
{
	const struct {
		const char *name, *unit;
		double value;
	} rows[] = {
		{"RSS", "KiB", to->rss_kib - from->rss_kib},
		{"PSS", "KiB", to->pss_kib - from->pss_kib},
		{"PSS, heap", "KiB", to->anon_kib - from->anon_kib},
		{"descriptors", "", to->fds - from->fds},
		{"threads", "", to->threads - from->threads},
		{"QPs", "", to->qps - from->qps},
		{"MRs", "", to->mrs - from->mrs},
	};

	for (unsigned int i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		bench_record(rank, BENCH_NEITHER, rows[i].unit, rows[i].value / parts, "%s, %s",
			     what, rows[i].name);
	}
}

static void run_idle(struct bench_rank *rank, const char *when)
{
	uint64_t before;
	time_t seconds = rank->opt->quick ? 1 : 2;
	struct timespec pause = {.tv_sec = seconds};

	bench_sync(rank);
	before = bench_wakeups();
	nanosleep(&pause, NULL);
	bench_record(rank, BENCH_NEITHER, "1/s",
		     (double)(bench_wakeups() - before) / (double)seconds, "wakeups idle, %s",
		     when);
	bench_sync(rank);
}

/* All in one process pair: connections first, so that their cost is not hidden by the traffic. */
static void run_all(struct bench_rank *rank)
{
	struct bench_usage bare, open, first, all;
	uint64_t more_ns = 0;
	uint64_t first_ns;

	bench_usage_read(rank, &bare);
	bench_open(rank);
	bench_usage_read(rank, &open);
	first_ns = bench_connect(rank);
	bench_usage_read(rank, &first);
	run_idle(rank, "1 comm each way");
	for (unsigned int i = 1; i < rank->opt->comm_count; i++) {
		more_ns += bench_connect(rank);
	}
	bench_usage_read(rank, &all);
	run_idle(rank, "all comms");
	bench_register(rank);
	run_latency(rank);
	run_rate(rank, 1);
	run_rate(rank, rank->opt->comm_count);
	run_bandwidth(rank, 1);
	run_bandwidth(rank, rank->opt->comm_count);
	bench_record(rank, BENCH_LESS, "ms", (double)first_ns / 1e6, "set-up, first each way");
	bench_record(rank, BENCH_LESS, "ms", (double)more_ns / 1e6 / (rank->opt->comm_count - 1),
		     "set-up, one more each way");
	record_usage(rank, "process", &bare, &open, 1);
	record_usage(rank, "first peer", &open, &first, 1);
	record_usage(rank, "comm each way", &first, &all, rank->opt->comm_count - 1);
}

static _Noreturn void rank_main(const struct bench_options *opt, struct bench_shared *shared,
				int id)
{
	struct bench_rank rank = {.opt = opt, .shared = shared, .id = id};

	setenv("FABRIC_HOST", id ? "1" : "0", 1);
	alarm(ROUND_MAX_S);
	if (opt->count) {
		bench_open(&rank);
		bench_count(&rank);
	} else {
		run_all(&rank);
	}
	bench_sync(&rank);
	bench_close(&rank);
	_exit(0);
}

static void remove_dir(const char *name)
{
	DIR *dir = opendir(name);
	const struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		if (entry->d_name[0] != '.') {
			unlinkat(dirfd(dir), entry->d_name, 0);
		}
	}
	if (dir) {
		closedir(dir);
	}
	rmdir(name);
}

/* Both ranks of one plugin, from start to end. */
static int run_pair(const struct bench_options *opt, struct bench_shared *shared)
{
	char dir[] = "/dev/shm/net_bench.XXXXXX";
	pid_t pids[2];
	int err = 0;

	memset(shared, 0, sizeof(*shared));
	if (!mkdtemp(dir)) {
		return -errno;
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
	remove_dir(dir);
	return err;
}

static int run_rounds(const struct bench_options *opt, struct bench_shared *shared)
{
	struct bench_table *table = bench_table_create(opt);
	int err = table ? 0 : -ENOMEM;

	for (unsigned int round = 0; !err && round < opt->rounds; round++) {
		for (unsigned int p = 0; !err && p < opt->plugin_count; p++) {
			struct bench_options one = *opt;

			one.plugins[0] = opt->plugins[p];
			err = run_pair(&one, shared);
			if (!err) {
				bench_table_add(table, p, shared);
			}
		}
	}
	if (!err && !bench_table_print(table)) {
		err = -EIO;
	}
	if (!err && opt->json) {
		err = bench_table_json(table, opt->json);
	}
	bench_table_destroy(table);
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
		opt->count = true;
		opt->dump_dir = key == 'N' ? arg : NULL;
		return 0;
	default:
		return -EINVAL;
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
					      {NULL, 0, NULL, 0}};
	int key;

	while ((key = getopt_long(argc, argv, "p:f:r:c:a:e:j:qn", longs, NULL)) != -1) {
		if (take_option(opt, key, optarg)) {
			return -EINVAL;
		}
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
	struct bench_options opt = {.rounds = 3, .comm_count = 8, .self = argv[0]};
	struct bench_shared *shared;

	if (parse(argc, argv, &opt)) {
		fputs(usage_text, stderr);
		return 2;
	}
	if (opt.fabric_lib && restart_with_fabric(&opt, argv)) {
		perror("net_bench: restart");
		return 1;
	}
	if (opt.count && !opt.dump_dir) {
		return bench_count_start(&opt);
	}
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED) {
		perror("net_bench: mmap");
		return 1;
	}
	return (opt.count ? run_pair(&opt, shared) : run_rounds(&opt, shared)) ? 1 : 0;
}
