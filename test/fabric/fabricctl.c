/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/fabric_ctl.h"

#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char doc[] =
	"Controls a running software fabric.\n\n"
	"  fault \"RULE\"...  install fault rules: ACTION host=H rail=R [dir=tx|rx|both]\n"
	"                   [KEY=VALUE...] [TRIGGER]; test/fabric/README.md lists them\n"
	"  counters         bytes and messages per host and rail\n"
	"  fired            the rules that fired, oldest first\n"
	"  run COMMAND...   runs it on the fabric, in a fresh directory that goes with it\n"
	"  replay           the same as a file of rules for another run, by bytes";

static const struct argp_option options[] = {
	{"dir", 'D', "DIR", 0, "the fabric's directory (default: $FABRIC_DIR)", 0},
	{0},
};

struct args {
	const char *dir;
	char **words;
	int word_count;
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct args *args = state->input;

	switch (key) {
	case 'D':
		args->dir = arg;
		return 0;
	case ARGP_KEY_ARGS:
		args->words = state->argv + state->next;
		args->word_count = state->argc - state->next;
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_usage(state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static int do_fault(struct fabric_ctl *ctl, const struct args *args)
{
	for (int i = 1; i < args->word_count; i++) {
		char why[256];
		uint32_t idx;
		int rc = fabric_ctl_fault(ctl, args->words[i], &idx, why, sizeof(why));

		if (rc == -EINVAL) {
			fprintf(stderr, "fabricctl: '%s': %s\n", args->words[i], why);
			return 2;
		}
		if (rc != 0) {
			fprintf(stderr, "fabricctl: %s\n", strerror(-rc));
			return 1;
		}
		printf("rule %" PRIu32 "\n", idx);
	}
	return args->word_count > 1 ? 0 : 2;
}

static int do_counters(struct fabric_ctl *ctl)
{
	printf("host rail tx_bytes rx_bytes tx_msgs rx_msgs late_held late_landed late_dropped "
	       "lost\n");
	for (uint32_t host = 0; host < 64; host++) {
		for (uint32_t rail = 0; rail < 16; rail++) {
			struct fabric_counters c;

			if (fabric_ctl_counters(ctl, host, rail, &c) != 0 ||
			    c.tx_bytes + c.rx_bytes + c.tx_msgs + c.rx_msgs + c.late_held == 0) {
				continue;
			}
			printf("%" PRIu32 " %" PRIu32 " %" PRIu64 " %" PRIu64 " %" PRIu64
			       " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
			       host, rail, c.tx_bytes, c.rx_bytes, c.tx_msgs, c.rx_msgs,
			       c.late_held, c.late_landed, c.late_dropped, c.lost);
		}
	}
	return 0;
}

static int do_fired(struct fabric_ctl *ctl)
{
	uint32_t count = fabric_ctl_fired_count(ctl);

	for (uint32_t i = 0; i < count; i++) {
		struct fabric_fired f;

		if (fabric_ctl_fired(ctl, i, &f) == 0) {
			printf("%" PRIu64 " rule %" PRIu32 " seen %" PRIu64 " tx %" PRIu64
			       " rx %" PRIu64 ": %s\n",
			       f.t_ns, f.rule_idx, f.seen, f.tx_bytes, f.rx_bytes, f.text);
		}
	}
	return 0;
}

static int do_replay(struct fabric_ctl *ctl)
{
	uint32_t count = fabric_ctl_fired_count(ctl);
	char text[256];

	for (uint32_t i = 0; i < count; i++) {
		if (fabric_ctl_replay(ctl, i, text, sizeof(text)) == 0) {
			printf("%s\n", text);
		}
	}
	return 0;
}

/* The stand-in library is where this program is. */
static int library_path_set(void)
{
	const char *more = getenv("LD_LIBRARY_PATH");
	char path[PATH_MAX];
	char value[2 * PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", path, sizeof(path) - 1);

	if (len <= 0) {
		return -1;
	}
	path[len] = '\0';
	*strrchr(path, '/') = '\0';
	snprintf(value, sizeof(value), "%s%s%.*s", path, more != NULL ? ":" : "", PATH_MAX,
		 more != NULL ? more : "");
	return setenv("LD_LIBRARY_PATH", value, 1);
}

/* All that belongs to the command keeps the directory. Returns what the command did. */
static int do_run(char **command)
{
	char dir[64];
	int status;
	int hold_fd;
	pid_t pid;

	if (fabric_ctl_make_dir(dir, sizeof(dir), &hold_fd) != 0 || library_path_set() != 0 ||
	    setenv("FABRIC_DIR", dir, 1) != 0) {
		fprintf(stderr, "fabricctl: cannot make a directory: %s\n", strerror(errno));
		return 1;
	}
	pid = fork();
	if (pid == 0) {
		fcntl(hold_fd, F_SETFD, 0);
		execvp(command[0], command);
		fprintf(stderr, "fabricctl: %s: %s\n", command[0], strerror(errno));
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid) {
		return 1;
	}
	close(hold_fd);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = parse_option,
		.args_doc = "fault RULE... | counters | fired | replay | run COMMAND...",
		.doc = doc,
	};
	struct args args = {.dir = getenv("FABRIC_DIR")};
	struct fabric_ctl *ctl;
	int rc;

	if (argc > 1 && strcmp(argv[1], "run") == 0) { /* the rest is another program's */
		if (argc == 2) {
			fprintf(stderr, "fabricctl: run what?\n");
			return 2;
		}
		return do_run(argv + 2);
	}
	argp_parse(&argp, argc, argv, 0, NULL, &args);
	if (args.dir == NULL) {
		fprintf(stderr, "fabricctl: neither --dir nor FABRIC_DIR is given\n");
		return 2;
	}
	rc = fabric_ctl_open(args.dir, &ctl);
	if (rc != 0) {
		fprintf(stderr, "fabricctl: %s: %s\n", args.dir,
			rc == -EPROTO ? "made by another version of the fabric" : strerror(-rc));
		return 1;
	}
	if (strcmp(args.words[0], "fault") == 0) {
		rc = do_fault(ctl, &args);
	} else if (strcmp(args.words[0], "counters") == 0) {
		rc = do_counters(ctl);
	} else if (strcmp(args.words[0], "fired") == 0) {
		rc = do_fired(ctl);
	} else if (strcmp(args.words[0], "replay") == 0) {
		rc = do_replay(ctl);
	} else {
		fprintf(stderr, "fabricctl: '%s' is none of fault, counters, fired, replay, run\n",
			args.words[0]);
		rc = 2;
	}
	fabric_ctl_close(ctl);
	return rc;
}
