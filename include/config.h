/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_INCLUDE_CONFIG_H
#define BRAID_INCLUDE_CONFIG_H

/* The configuration: rows in config.def, read once from the environment, constant afterwards. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define CONFIG_TEXT_MAX_BYTES 256 /* STRING, LIST, CIDR fields, their NUL included */
#define CONFIG_NAME_MAX_BYTES 64  /* one name of a LIST, its NUL included */

/** Values of `stripe`; from 1 on it is the number of active rails, nearest first. */
enum config_stripe {
	CONFIG_STRIPE_ALL = -1,
	CONFIG_STRIPE_NEAR = 0,
	CONFIG_STRIPE_NONE = 1
};

enum config_type {
	CONFIG_INT,
	CONFIG_BOOL,
	CONFIG_BYTES,
	CONFIG_LINES,
	CONFIG_STRING,
	CONFIG_LIST,
	CONFIG_CIDR,
	CONFIG_FAMILY,
	CONFIG_STRIPE,
	CONFIG_IGNORED,
	CONFIG_TYPE_COUNT
};

/** One name per row: CONFIG_VAR_stall_ms and so on. */
enum config_var {
#define X(field, env, type, value, min, max, unit, help) CONFIG_VAR_##field,
#include "include/config.def"
#undef X
	CONFIG_VAR_COUNT
};

#define CONFIG_FIELD_INT(field)     int field;
#define CONFIG_FIELD_BOOL(field)    bool field;
#define CONFIG_FIELD_BYTES(field)   size_t field;
#define CONFIG_FIELD_LINES(field)   size_t field;
#define CONFIG_FIELD_STRING(field)  char field[CONFIG_TEXT_MAX_BYTES];
#define CONFIG_FIELD_LIST(field)    char field[CONFIG_TEXT_MAX_BYTES];
#define CONFIG_FIELD_CIDR(field)    char field[CONFIG_TEXT_MAX_BYTES];
#define CONFIG_FIELD_FAMILY(field)  int field;
#define CONFIG_FIELD_STRIPE(field)  int field;
#define CONFIG_FIELD_IGNORED(field) /* no field */

/** Values after checking. LIST and CIDR texts are well formed; "" means not set. */
struct braid_config {
#define X(field, env, type, value, min, max, unit, help) CONFIG_FIELD_##type(field)
#include "include/config.def"
#undef X
	bool is_set[CONFIG_VAR_COUNT]; /* by the user, with a value that was accepted */
};

/** What is known about one variable; all strings are static. */
struct config_row {
	const char *env;
	enum config_type type;
	size_t offset;            /* in struct braid_config */
	int64_t value_default;    /* of numbers */
	const char *text_default; /* of STRING, LIST, CIDR; NULL for numbers */
	int64_t min;
	int64_t max;
	const char *unit;
	const char *help;
};

/** The row of a variable; `var` must be below CONFIG_VAR_COUNT. */
const struct config_row *config_row(enum config_var var);

/** Set every field to its default. */
void config_default(struct braid_config *out);

/**
 * Read the configuration from `env`, an array of "NAME=value" that ends in NULL (environ). An empty
 * value counts as not set. Logs each value that differs from its default, warns of bad values (the
 * default is used), of unknown BRAID_* names and of retry times beyond a minute. Any thread, does
 * not block.
 * @return 0, or -EINVAL when a value is bad and a guess would hurt: the cause is logged, *out is
 *         left alone, and the caller must report no devices.
 */
int config_load(char *const *env, struct braid_config *out);

/** Time an HCA retries before it reports an error, in ms; UINT64_MAX when it never does. */
uint64_t config_retry_budget_ms(const struct braid_config *config);

#endif
