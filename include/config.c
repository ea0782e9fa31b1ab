/* SPDX-License-Identifier: Apache-2.0 */
#include "include/config.h"

#include "include/config_parse.h"
#include "include/log.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define OWN_PREFIX               "BRAID_"
#define RETRY_BUDGET_WARN_MS     60000U
#define NAME_DISTANCE_NEAR_COUNT 6U /* more changes than this is no misspelling */

#define ROW_NUMBER(field, value)                                                                   \
	.offset = offsetof(struct braid_config, field), .value_default = (value)
#define ROW_TEXT(field, value)                                                                     \
	.offset = offsetof(struct braid_config, field), .text_default = (value)
#define ROW_INT(field, value)     ROW_NUMBER(field, value)
#define ROW_BOOL(field, value)    ROW_NUMBER(field, value)
#define ROW_BYTES(field, value)   ROW_NUMBER(field, value)
#define ROW_LINES(field, value)   ROW_NUMBER(field, value)
#define ROW_FAMILY(field, value)  ROW_NUMBER(field, value)
#define ROW_STRIPE(field, value)  ROW_NUMBER(field, value)
#define ROW_STRING(field, value)  ROW_TEXT(field, value)
#define ROW_LIST(field, value)    ROW_TEXT(field, value)
#define ROW_CIDR(field, value)    ROW_TEXT(field, value)
#define ROW_IGNORED(field, value) .offset = 0

static const struct config_row rows[] = {
#define X(field_, env_, type_, value_, min_, max_, unit_, help_)                                   \
	[CONFIG_VAR_##field_] = {.env = (env_),                                                    \
				 .type = CONFIG_##type_,                                           \
				 ROW_##type_(field_, value_),                                      \
				 .min = (min_),                                                    \
				 .max = (max_),                                                    \
				 .unit = (unit_),                                                  \
				 .help = (help_)},
#include "include/config.def"
#undef X
};

static_assert(sizeof(rows) / sizeof(rows[0]) == CONFIG_VAR_COUNT, "a row per variable");

const struct config_row *config_row(enum config_var var)
{
	ASSERT(var < CONFIG_VAR_COUNT);
	return &rows[var];
}

static void number_store(struct braid_config *config, const struct config_row *row, int64_t value)
{
	void *field = (char *)config + row->offset;

	switch (row->type) {
	case CONFIG_INT:
	case CONFIG_FAMILY:
	case CONFIG_STRIPE:
		*(int *)field = (int)value;
		break;
	case CONFIG_BOOL:
		*(bool *)field = value != 0;
		break;
	case CONFIG_BYTES:
	case CONFIG_LINES:
		*(size_t *)field = (size_t)value;
		break;
	case CONFIG_STRING:
	case CONFIG_LIST:
	case CONFIG_CIDR:
	case CONFIG_IGNORED:
	case CONFIG_TYPE_COUNT:
		break;
	}
}

static void text_store(struct braid_config *config, const struct config_row *row, const char *text)
{
	char *field = (char *)config + row->offset;

	snprintf(field, CONFIG_TEXT_MAX_BYTES, "%s", text);
}

void config_default(struct braid_config *out)
{
	memset(out, 0, sizeof(*out));
	for (unsigned var = 0; var < CONFIG_VAR_COUNT; var++) {
		if (rows[var].text_default != NULL) {
			text_store(out, &rows[var], rows[var].text_default);
		} else {
			number_store(out, &rows[var], rows[var].value_default);
		}
	}
}

/* What a value of this row may be, for the line about a bad one. */
static void valid_describe(const struct config_row *row, char *text, size_t room)
{
	switch (row->type) {
	case CONFIG_INT:
	case CONFIG_BYTES:
	case CONFIG_LINES:
		snprintf(text, room, "%" PRId64 " to %" PRId64 "%s%s%s", row->min, row->max,
			 row->unit[0] != '\0' ? " " : "", row->unit,
			 row->type == CONFIG_LINES ? ", a multiple of 128" : "");
		return;
	case CONFIG_BOOL:
		snprintf(text, room, "0 or 1");
		return;
	case CONFIG_FAMILY:
		snprintf(text, room, "AF_INET or AF_INET6");
		return;
	case CONFIG_STRIPE:
		snprintf(text, room, "near, all, none or a count");
		return;
	case CONFIG_LIST:
		snprintf(text, room, "[^][=]name[:port],...");
		return;
	case CONFIG_CIDR:
		snprintf(text, room, "address/length");
		return;
	case CONFIG_STRING:
	case CONFIG_IGNORED:
	case CONFIG_TYPE_COUNT:
		snprintf(text, room, "a text of up to %d bytes", CONFIG_TEXT_MAX_BYTES - 1);
		return;
	}
}

/* The default as the user would write it. */
static void default_describe(const struct config_row *row, char *text, size_t room)
{
	if (row->text_default != NULL) {
		snprintf(text, room, "%s",
			 row->text_default[0] != '\0' ? row->text_default : "unset");
	} else if (row->type == CONFIG_STRIPE) {
		snprintf(text, room, "near");
	} else if (row->type == CONFIG_FAMILY) {
		snprintf(text, room, "%s", row->value_default == AF_INET ? "AF_INET" : "unset");
	} else {
		snprintf(text, room, "%" PRId64, row->value_default);
	}
}

static bool is_number(const struct config_row *row)
{
	return row->text_default == NULL && row->type != CONFIG_IGNORED;
}

static bool is_refused(const struct config_row *row)
{
	return row->type == CONFIG_LIST || row->type == CONFIG_CIDR;
}

/* Take one set variable over; 0, or -EINVAL when it must be refused. */
static int value_take(struct braid_config *config, enum config_var var, const char *text)
{
	const struct config_row *row = &rows[var];
	char valid[96];
	char preset[CONFIG_TEXT_MAX_BYTES];
	int64_t value = 0;

	if (row->type == CONFIG_IGNORED) {
		LOG_ENV("%s=%s has no effect: %s", row->env, text, row->help);
		return 0;
	}
	const char *wrong = is_number(row) ? config_parse_number(row, text, &value)
					   : config_parse_text(row, text);

	default_describe(row, preset, sizeof(preset));
	if (wrong == NULL) {
		if (is_number(row)) {
			number_store(config, row, value);
		} else {
			text_store(config, row, text);
		}
		config->is_set[var] = true;
		if (!is_number(row) || value != row->value_default) {
			LOG_ENV("%s=%s (default %s)", row->env, text, preset);
		}
		return 0;
	}
	valid_describe(row, valid, sizeof(valid));
	if (is_refused(row)) {
		LOG_WARN("%s='%s': %s; valid: %s. Reporting no devices rather than guess which to "
			 "use",
			 row->env, text, wrong, valid);
		return -EINVAL;
	}
	LOG_WARN("%s='%s': %s; valid: %s; using the default, %s", row->env, text, wrong, valid,
		 preset);
	return 0;
}

/* The row that the entry "NAME=value" is for, or CONFIG_VAR_COUNT; *value is what follows '='. */
static enum config_var entry_find(const char *entry, const char **value)
{
	for (unsigned var = 0; var < CONFIG_VAR_COUNT; var++) {
		size_t len = strlen(rows[var].env);

		if (strncmp(entry, rows[var].env, len) == 0 && entry[len] == '=') {
			*value = entry + len + 1;
			return (enum config_var)var;
		}
	}
	return CONFIG_VAR_COUNT;
}

/* A name of ours that no row has is a misspelling, or from another release: never ignore it. */
static void unknown_warn(const char *entry)
{
	char name[96];
	size_t len = strcspn(entry, "=");
	unsigned nearest_distance = NAME_DISTANCE_NEAR_COUNT + 1;
	const char *nearest = NULL;

	snprintf(name, sizeof(name), "%.*s", (int)(len < sizeof(name) ? len : sizeof(name) - 1),
		 entry);
	for (unsigned var = 0; var < CONFIG_VAR_COUNT; var++) {
		unsigned distance = config_name_distance(name, rows[var].env);

		if (distance < nearest_distance) {
			nearest_distance = distance;
			nearest = rows[var].env;
		}
	}
	if (nearest != NULL) {
		LOG_WARN("%s is not a variable of Braid, so it has no effect; did you mean %s?",
			 name, nearest);
	} else {
		LOG_WARN("%s is not a variable of Braid, so it has no effect; braid(7) lists them",
			 name);
	}
}

uint64_t config_retry_budget_ms(const struct braid_config *config)
{
	if (config->ib_timeout == 0) {
		return UINT64_MAX;
	}
	/* IBA 9.7.6.1.3: one wait is 4.096 us * 2^timeout, and the first try counts too. */
	uint64_t wait_ns = UINT64_C(4096) << config->ib_timeout;

	return wait_ns * ((uint64_t)config->ib_retry_count + 1) / 1000000;
}

static void retry_budget_check(const struct braid_config *config)
{
	uint64_t budget_ms = config_retry_budget_ms(config);

	if (budget_ms == UINT64_MAX) {
		LOG_WARN("NCCL_IB_TIMEOUT=0: the HCA waits for ever, so only BRAID_STALL_MS and "
			 "port "
			 "events find a dead path");
	} else if (budget_ms > RETRY_BUDGET_WARN_MS) {
		LOG_WARN("NCCL_IB_TIMEOUT=%d with NCCL_IB_RETRY_CNT=%d: the HCA reports a dead "
			 "path only "
			 "after %" PRIu64
			 " s; until then only BRAID_STALL_MS and port events find it",
			 config->ib_timeout, config->ib_retry_count, budget_ms / 1000);
	}
}

int config_load(char *const *env, struct braid_config *out)
{
	struct braid_config config;
	int rc = 0;

	config_default(&config);
	for (; *env != NULL; env++) {
		const char *value = NULL;
		enum config_var var = entry_find(*env, &value);

		if (var == CONFIG_VAR_COUNT) {
			if (strncmp(*env, OWN_PREFIX, sizeof(OWN_PREFIX) - 1) == 0) {
				unknown_warn(*env);
			}
		} else if (value[0] != '\0' && value_take(&config, var, value) != 0) {
			rc = -EINVAL;
		}
	}
	if (rc != 0) {
		return rc;
	}
	retry_budget_check(&config);
	*out = config;
	return 0;
}
