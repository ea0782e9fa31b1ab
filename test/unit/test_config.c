/* SPDX-License-Identifier: Apache-2.0 */
#include "include/config.h"
#include "include/config_parse.h"
#include "include/log.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char warned[4096];
static char informed[8192];

static void sink(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
	char text[LOG_LINE_MAX_BYTES];
	char *to = level == LOG_LEVEL_WARN ? warned : informed;
	size_t room = level == LOG_LEVEL_WARN ? sizeof(warned) : sizeof(informed);
	va_list args;

	(void)flags;
	(void)file;
	(void)line;
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	snprintf(to + strlen(to), room - strlen(to), "%s\n", text);
}

static int setup(void **state)
{
	(void)state;
	warned[0] = '\0';
	informed[0] = '\0';
	log_sink_set(sink);
	return 0;
}

static int load(const char *entry, struct braid_config *out)
{
	char copy[512];
	char *env[] = {"PATH=/bin", copy, NULL};

	snprintf(copy, sizeof(copy), "%s", entry);
	setup(NULL);
	return config_load(env, out);
}

static void test_defaults(void **state)
{
	char *env[] = {"HOME=/", "NCCL_DEBUG=INFO", NULL};
	struct braid_config config;

	(void)state;
	assert_int_equal(config_load(env, &config), 0);
	assert_int_equal(config.paths_max_count, 8);
	assert_int_equal(config.stripe, CONFIG_STRIPE_NEAR);
	assert_int_equal(config.small_bytes, 16384);
	assert_int_equal(config.piece_bytes, 65536);
	assert_int_equal(config.path_window_bytes, 4 << 20);
	assert_int_equal(config.stall_ms, 1000);
	assert_int_equal(config.ib_timeout, 14);
	assert_int_equal(config.ib_retry_count, 6);
	assert_int_equal(config.ib_gid_idx, -1);
	assert_int_equal(config.ib_addr_family, AF_INET);
	assert_int_equal(config.socket_family, AF_UNSPEC);
	assert_true(config.ib_merge_vfs);
	assert_false(config.disable);
	assert_string_equal(config.ib_hca, "");
	for (unsigned var = 0; var < CONFIG_VAR_COUNT; var++) {
		assert_false(config.is_set[var]);
	}
	assert_string_equal(warned, "");
	assert_string_equal(informed, "");
}

/* Each default must itself be a valid value, or the line about a bad one would send users wrong. */
static void test_rows(void **state)
{
	(void)state;
	for (unsigned var = 0; var < CONFIG_VAR_COUNT; var++) {
		const struct config_row *row = config_row((enum config_var)var);
		char text[32];
		int64_t value;

		assert_true(strncmp(row->env, "BRAID_", 6) == 0 ||
			    strncmp(row->env, "NCCL_", 5) == 0);
		assert_true(strlen(row->help) > 10);
		for (unsigned other = 0; other < var; other++) {
			assert_string_not_equal(row->env, config_row((enum config_var)other)->env);
		}
		if (row->type == CONFIG_INT || row->type == CONFIG_BYTES ||
		    row->type == CONFIG_LINES) {
			snprintf(text, sizeof(text), "%lld", (long long)row->value_default);
			assert_null(config_parse_number(row, text, &value));
			assert_true(row->min < row->max);
		}
	}
}

static void test_good_values(void **state)
{
	struct braid_config config;

	(void)state;
	assert_int_equal(load("BRAID_STALL_MS=250", &config), 0);
	assert_int_equal(config.stall_ms, 250);
	assert_true(config.is_set[CONFIG_VAR_stall_ms]);
	assert_false(config.is_set[CONFIG_VAR_no_path_ms]);
	assert_string_equal(informed, "NET/Braid BRAID_STALL_MS=250 (default 1000)\n");
	assert_int_equal(load("BRAID_STALL_MS=0x100", &config), 0);
	assert_int_equal(config.stall_ms, 256);
	assert_int_equal(load("BRAID_STALL_MS=1000", &config), 0);
	assert_true(config.is_set[CONFIG_VAR_stall_ms]);
	assert_string_equal(informed, "");
	assert_int_equal(load("BRAID_STALL_MS=", &config), 0);
	assert_false(config.is_set[CONFIG_VAR_stall_ms]);
	assert_string_equal(warned, "");
	assert_int_equal(load("BRAID_PIECE_BYTES=128k", &config), 0);
	assert_int_equal(config.piece_bytes, 128 << 10);
	assert_int_equal(load("BRAID_PATH_WINDOW_BYTES=1G", &config), 0);
	assert_int_equal(config.path_window_bytes, 1 << 30);
	assert_int_equal(load("BRAID_STRIPE=all", &config), 0);
	assert_int_equal(config.stripe, CONFIG_STRIPE_ALL);
	assert_int_equal(load("BRAID_STRIPE=none", &config), 0);
	assert_int_equal(config.stripe, 1);
	assert_int_equal(load("BRAID_STRIPE=3", &config), 0);
	assert_int_equal(config.stripe, 3);
	assert_int_equal(load("NCCL_IB_ADDR_FAMILY=AF_INET6", &config), 0);
	assert_int_equal(config.ib_addr_family, AF_INET6);
	assert_int_equal(load("NCCL_IB_MERGE_VFS=0", &config), 0);
	assert_false(config.ib_merge_vfs);
	assert_int_equal(load("BRAID_EVENT_FILE=/tmp/%h.%p", &config), 0);
	assert_string_equal(config.event_file, "/tmp/%h.%p");
	assert_string_equal(warned, "");
}

static void expect_default(const char *entry, const char *line)
{
	struct braid_config config;
	struct braid_config preset;

	config_default(&preset);
	assert_int_equal(load(entry, &config), 0);
	assert_string_equal(warned, line);
	assert_memory_equal(&config, &preset, sizeof(config));
}

static void test_bad_values(void **state)
{
	(void)state;
	expect_default("BRAID_STALL_MS=1s",
		       "NET/Braid BRAID_STALL_MS='1s': not a whole number; valid: 20 "
		       "to 600000 ms; using the default, 1000\n");
	expect_default("BRAID_STALL_MS=19",
		       "NET/Braid BRAID_STALL_MS='19': out of range; valid: 20 to "
		       "600000 ms; using the default, 1000\n");
	expect_default(
		"BRAID_STALL_MS=99999999999999999999",
		"NET/Braid BRAID_STALL_MS='99999999999999999999': out of range; valid: 20 to "
		"600000 ms; using the default, 1000\n");
	expect_default("BRAID_STALL_MS= 30",
		       "NET/Braid BRAID_STALL_MS=' 30': not a whole number; valid: "
		       "20 to 600000 ms; using the default, 1000\n");
	expect_default("BRAID_PIECE_BYTES=65600",
		       "NET/Braid BRAID_PIECE_BYTES='65600': not a multiple of 128; valid: 1024 to "
		       "67108864 bytes, a multiple of 128; using the default, 65536\n");
	expect_default(
		"BRAID_PATH_WINDOW_BYTES=9999999999G",
		"NET/Braid BRAID_PATH_WINDOW_BYTES='9999999999G': out of range; valid: 65536 to "
		"1073741824 bytes; using the default, 4194304\n");
	expect_default("BRAID_STRIPE=far",
		       "NET/Braid BRAID_STRIPE='far': none of near, all, none and a "
		       "count up to 64; valid: near, all, none or a count; using the "
		       "default, near\n");
	expect_default("BRAID_STRIPE=0",
		       "NET/Braid BRAID_STRIPE='0': none of near, all, none and a count "
		       "up to 64; valid: near, all, none or a count; using the default, "
		       "near\n");
	expect_default("BRAID_DISABLE=yes",
		       "NET/Braid BRAID_DISABLE='yes': neither 0 nor 1; valid: 0 or 1; "
		       "using the default, 0\n");
	expect_default("NCCL_SOCKET_FAMILY=inet",
		       "NET/Braid NCCL_SOCKET_FAMILY='inet': neither AF_INET nor AF_INET6; valid: "
		       "AF_INET or AF_INET6; using the default, unset\n");
}

/* At the edge of int64_t the row's range cannot catch what the digits or the suffix overflow. */
static void test_overflow(void **state)
{
	const struct config_row row = {.type = CONFIG_BYTES, .min = INT64_MIN, .max = INT64_MAX};
	int64_t value = 0;

	(void)state;
	assert_null(config_parse_number(&row, "9223372036854775807", &value));
	assert_true(value == INT64_MAX);
	assert_string_equal(config_parse_number(&row, "9223372036854775808", &value),
			    "out of range");
	assert_null(config_parse_number(&row, "8589934591G", &value));
	assert_true(value == INT64_C(8589934591) << 30);
	assert_string_equal(config_parse_number(&row, "8589934592G", &value), "out of range");
	assert_string_equal(config_parse_number(&row, "-1K", &value), "out of range");
}

static void expect_list(const char *text, const char *wrong)
{
	const char *got = config_parse_text(config_row(CONFIG_VAR_ib_hca), text);

	if (wrong == NULL) {
		assert_null(got);
	} else {
		assert_non_null(got);
		assert_string_equal(got, wrong);
	}
}

static void test_lists(void **state)
{
	char name[CONFIG_NAME_MAX_BYTES + 1];

	(void)state;
	expect_list("mlx5", NULL);
	expect_list("^mlx5_0,mlx5_1:1", NULL);
	expect_list("=mlx5_0:1:0:3", NULL);
	expect_list("^=mlx5_bond_0", NULL);
	expect_list("eth0,", NULL);
	expect_list(",eth0,,br-1.2@x", NULL);
	expect_list("^", "no name in it");
	expect_list(",,", "no name in it");
	expect_list("mlx5_0;mlx5_1", "a character that no name holds");
	expect_list("mlx5_0, mlx5_1", "a character that no name holds");
	expect_list("mlx5_0,^mlx5_1", "a ^ or = is allowed only once, at the start (^ before =)");
	expect_list("=^mlx5_1", "a ^ or = is allowed only once, at the start (^ before =)");
	expect_list("mlx5_0:", "something else than a number after a colon");
	expect_list("mlx5_0:one", "something else than a number after a colon");
	expect_list("mlx5_0:1:2:3:4", "more than three numbers after a name");
	memset(name, 'n', sizeof(name));
	name[CONFIG_NAME_MAX_BYTES] = '\0';
	expect_list(name, "a name too long");
	name[CONFIG_NAME_MAX_BYTES - 1] = '\0';
	expect_list(name, NULL);
}

static void test_cidr(void **state)
{
	const struct config_row *row = config_row(CONFIG_VAR_ib_addr_range);

	(void)state;
	assert_null(config_parse_text(row, "192.168.1.0/24"));
	assert_null(config_parse_text(row, "fd00::/64"));
	assert_null(config_parse_text(row, "::/128"));
	assert_non_null(config_parse_text(row, "192.168.1.0"));
	assert_non_null(config_parse_text(row, "192.168.1.0/33"));
	assert_non_null(config_parse_text(row, "192.168.1/24"));
	assert_non_null(config_parse_text(row, "fd00::/129"));
	assert_non_null(config_parse_text(row, "fd00::/"));
	assert_non_null(
		config_parse_text(row, "aaaa:aaaa:aaaa:aaaa:aaaa:aaaa:aaaa:aaaa:aaaa:aaaa:aaaa/1"));
}

static void test_refused(void **state)
{
	struct braid_config config;
	struct braid_config before;

	(void)state;
	memset(&config, 0x5a, sizeof(config));
	before = config;
	assert_int_equal(load("NCCL_IB_HCA=mlx5_0;mlx5_1", &config), -EINVAL);
	assert_memory_equal(&config, &before, sizeof(config));
	assert_string_equal(
		warned, "NET/Braid NCCL_IB_HCA='mlx5_0;mlx5_1': a character that no name holds; "
			"valid: [^][=]name[:port],.... Reporting no devices rather than guess "
			"which to use\n");
	assert_int_equal(load("NCCL_IB_ADDR_RANGE=10.0.0.0", &config), -EINVAL);
	assert_int_equal(load("NCCL_SOCKET_IFNAME=^", &config), -EINVAL);
}

static void test_too_long(void **state)
{
	struct braid_config config;
	char entry[400] = "BRAID_EVENT_FILE=";
	size_t head = strlen(entry);

	(void)state;
	memset(entry + head, 'f', CONFIG_TEXT_MAX_BYTES);
	assert_int_equal(load(entry, &config), 0);
	assert_string_equal(config.event_file, "");
	assert_non_null(strstr(warned,
			       "too long; valid: a text of up to 255 bytes; using the default, "
			       "unset"));
	entry[head + CONFIG_TEXT_MAX_BYTES - 1] = '\0';
	assert_int_equal(load(entry, &config), 0);
	assert_int_equal(strlen(config.event_file), CONFIG_TEXT_MAX_BYTES - 1);
}

static void test_unknown(void **state)
{
	struct braid_config config;

	(void)state;
	assert_int_equal(load("BRAID_STAL_MS=5", &config), 0);
	assert_string_equal(warned,
			    "NET/Braid BRAID_STAL_MS is not a variable of Braid, so it has no "
			    "effect; did you mean BRAID_STALL_MS?\n");
	load("BRAID_STRIPES=all", &config);
	assert_non_null(strstr(warned, "did you mean BRAID_STRIPE?"));
	load("BRAID_COMPLETELY_ELSEWHERE=1", &config);
	assert_string_equal(warned,
			    "NET/Braid BRAID_COMPLETELY_ELSEWHERE is not a variable of Braid, so "
			    "it has no effect; braid(7) lists them\n");
	load("NCCL_SOMETHING=1", &config);
	assert_string_equal(warned, "");
}

static void test_ignored(void **state)
{
	struct braid_config config;

	(void)state;
	assert_int_equal(load("NCCL_IB_QPS_PER_CONNECTION=4", &config), 0);
	assert_string_equal(warned, "");
	assert_string_equal(informed,
			    "NET/Braid NCCL_IB_QPS_PER_CONNECTION=4 has no effect: One queue "
			    "pair per path; BRAID_PATHS_MAX sets how many paths.\n");
	assert_false(config.is_set[CONFIG_VAR_ib_qps_per_connection]);
}

static void test_retry_budget(void **state)
{
	struct braid_config config;

	(void)state;
	config_default(&config);
	assert_int_equal(config_retry_budget_ms(&config), 469); /* 67.1 ms, 7 tries */
	config.ib_timeout = 31;
	config.ib_retry_count = 7;
	assert_int_equal(config_retry_budget_ms(&config), 70368744);
	load("NCCL_IB_TIMEOUT=20", &config);
	assert_string_equal(warned, "");
	load("NCCL_IB_TIMEOUT=22", &config);
	assert_non_null(strstr(warned,
			       "NCCL_IB_TIMEOUT=22 with NCCL_IB_RETRY_CNT=6: the HCA reports a "
			       "dead path only after 120 s"));
	load("NCCL_IB_TIMEOUT=0", &config);
	assert_non_null(strstr(warned, "waits for ever"));
	assert_true(config_retry_budget_ms(&config) == UINT64_MAX);
}

static void test_distance(void **state)
{
	(void)state;
	assert_int_equal(config_name_distance("", ""), 0);
	assert_int_equal(config_name_distance("", "abc"), 3);
	assert_int_equal(config_name_distance("abc", ""), 3);
	assert_int_equal(config_name_distance("kitten", "sitting"), 3);
	assert_int_equal(config_name_distance("sitting", "kitten"), 3);
	assert_int_equal(config_name_distance("BRAID_STALL_MS", "BRAID_STALL_MS"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_defaults, setup),
		cmocka_unit_test_setup(test_rows, setup),
		cmocka_unit_test_setup(test_good_values, setup),
		cmocka_unit_test_setup(test_bad_values, setup),
		cmocka_unit_test_setup(test_overflow, setup),
		cmocka_unit_test_setup(test_lists, setup),
		cmocka_unit_test_setup(test_cidr, setup),
		cmocka_unit_test_setup(test_refused, setup),
		cmocka_unit_test_setup(test_too_long, setup),
		cmocka_unit_test_setup(test_unknown, setup),
		cmocka_unit_test_setup(test_ignored, setup),
		cmocka_unit_test_setup(test_retry_budget, setup),
		cmocka_unit_test_setup(test_distance, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
