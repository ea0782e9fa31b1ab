/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/rule.h"
#include "test/fabric/words.h"

#include <infiniband/verbs.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Keys every rule may have, then those of enum fab_arg. */
enum key {
	KEY_HOST,
	KEY_RAIL,
	KEY_DIR,
	KEY_BYTES,
	KEY_WRITES,
	KEY_IMMS,
	KEY_EDGE,
	KEY_MS,
	KEY_ARGS,
	KEY_COUNT = KEY_ARGS + (int)FAB_ARG_COUNT,
};

#define KEY_BIT(key)    (1u << (key))
#define KEY_OF(suffix)  (KEY_ARGS + (int)FAB_ARG_##suffix)
#define ARG_BIT(suffix) KEY_BIT(KEY_OF(suffix))

static const char *const key_names[KEY_COUNT] = {
	[KEY_HOST] = "host",
	[KEY_RAIL] = "rail",
	[KEY_DIR] = "dir",
	[KEY_BYTES] = "bytes",
	[KEY_WRITES] = "writes",
	[KEY_IMMS] = "imms",
	[KEY_EDGE] = "edge",
	[KEY_MS] = "ms",
	[KEY_OF(VALUE)] = "value",
	[KEY_OF(DELAY_MS)] = "delay_ms",
	[KEY_OF(TYPE)] = "type",
	[KEY_OF(PORT)] = "port",
	[KEY_OF(NTH)] = "nth",
	[KEY_OF(TIMES)] = "count",
	[KEY_OF(DOWN_MS)] = "down_ms",
	[KEY_OF(UP_MS)] = "up_ms",
	[KEY_OF(P)] = "p",
	[KEY_OF(US)] = "us",
	[KEY_OF(JITTER_US)] = "jitter_us",
	[KEY_OF(INDEX)] = "index",
	[KEY_OF(CALL)] = "call",
	[KEY_OF(AFTER_MS)] = "after_ms",
};

static const uint64_t arg_max[FAB_ARG_COUNT] = {
	[FAB_ARG_VALUE] = 1000000000,   [FAB_ARG_DELAY_MS] = 3600000,
	[FAB_ARG_PORT] = 255,           [FAB_ARG_NTH] = 1000000000,
	[FAB_ARG_TIMES] = 1000000,      [FAB_ARG_DOWN_MS] = 3600000,
	[FAB_ARG_UP_MS] = 3600000,      [FAB_ARG_US] = 10000000,
	[FAB_ARG_JITTER_US] = 10000000, [FAB_ARG_INDEX] = FAB_GID_TABLE_MAX - 1,
	[FAB_ARG_AFTER_MS] = 3600000,
};

static const char *const event_names[] = {
	"port_err",   "port_active", "device_fatal", "gid_change",
	"lid_change", "pkey_change", "sm_change",    "client_reregister",
};
static const enum ibv_event_type event_types[] = {
	IBV_EVENT_PORT_ERR,   IBV_EVENT_PORT_ACTIVE,       IBV_EVENT_DEVICE_FATAL,
	IBV_EVENT_GID_CHANGE, IBV_EVENT_LID_CHANGE,        IBV_EVENT_PKEY_CHANGE,
	IBV_EVENT_SM_CHANGE,  IBV_EVENT_CLIENT_REREGISTER,
};
static const char *const call_names[FAB_CALL_COUNT] = {
	[FAB_CALL_OPEN_DEVICE] = "open_device", [FAB_CALL_ALLOC_PD] = "alloc_pd",
	[FAB_CALL_CREATE_CQ] = "create_cq",     [FAB_CALL_CREATE_QP] = "create_qp",
	[FAB_CALL_MODIFY_QP] = "modify_qp",     [FAB_CALL_DESTROY_QP] = "destroy_qp",
	[FAB_CALL_REG_MR] = "reg_mr",           [FAB_CALL_DEREG_MR] = "dereg_mr",
	[FAB_CALL_QUERY_PORT] = "query_port",
};
#define EVENT_COUNT ((int)(sizeof(event_types) / sizeof(event_types[0])))

static const char *const action_names[FAB_ACT_COUNT] = {
	[FAB_ACT_CUT] = "cut",
	[FAB_ACT_PORT_DOWN] = "port_down",
	[FAB_ACT_PORT_UP] = "port_up",
	[FAB_ACT_NIC_DEATH] = "nic_death",
	[FAB_ACT_ACK_LOSS] = "ack_loss",
	[FAB_ACT_HEAL] = "heal",
	[FAB_ACT_RATE] = "rate",
	[FAB_ACT_LATE] = "late",
	[FAB_ACT_FLAP] = "flap",
	[FAB_ACT_EVENT] = "event",
	[FAB_ACT_EVENT_DELAY] = "event_delay",
	[FAB_ACT_EVENT_TWICE] = "event_twice",
	[FAB_ACT_QP_FATAL] = "qp_fatal",
	[FAB_ACT_DROP] = "drop",
	[FAB_ACT_DELAY] = "delay",
	[FAB_ACT_GID_MOVE] = "gid_move",
	[FAB_ACT_GID_CLEAR] = "gid_clear",
	[FAB_ACT_ENOMEM] = "enomem",
	[FAB_ACT_BLOCK] = "block",
	[FAB_ACT_UNPLUG] = "unplug",
};

static const uint32_t action_needs[FAB_ACT_COUNT] = {
	[FAB_ACT_RATE] = ARG_BIT(VALUE),
	[FAB_ACT_LATE] = ARG_BIT(DELAY_MS),
	[FAB_ACT_FLAP] = ARG_BIT(TIMES) | ARG_BIT(DOWN_MS) | ARG_BIT(UP_MS),
	[FAB_ACT_EVENT] = ARG_BIT(TYPE),
	[FAB_ACT_EVENT_DELAY] = ARG_BIT(DELAY_MS),
	[FAB_ACT_DROP] = ARG_BIT(P),
	[FAB_ACT_DELAY] = ARG_BIT(US),
	[FAB_ACT_GID_MOVE] = ARG_BIT(INDEX),
	[FAB_ACT_ENOMEM] = ARG_BIT(CALL),
	[FAB_ACT_BLOCK] = ARG_BIT(CALL) | ARG_BIT(DELAY_MS),
};

static const uint32_t action_may[FAB_ACT_COUNT] = {
	[FAB_ACT_EVENT] = ARG_BIT(PORT),
	[FAB_ACT_QP_FATAL] = ARG_BIT(NTH),
	[FAB_ACT_DELAY] = ARG_BIT(JITTER_US),
	[FAB_ACT_ENOMEM] = ARG_BIT(NTH),
};

static const char *const dir_names[] = {"tx", "rx", "both"};
static const char *const edge_names[FAB_EDGE_COUNT] = {"before", "mid", "after", "acked_blank",
						       "acked"};

const char *fab_action_name(enum fab_action action)
{
	return action_names[action];
}

/* A number from 0 to 1 with a point, into parts per billion. */
static int share_parse(const char *text, uint64_t *ppb, char *why, size_t why_len)
{
	char *end;
	double got = strtod(text, &end);

	if (end == text || *end != '\0' || !(got >= 0 && got <= 1)) {
		snprintf(why, why_len, "p='%s' is not a number from 0 to 1", text);
		return -EINVAL;
	}
	*ppb = (uint64_t)(got * 1e9);
	return 0;
}

struct parse {
	struct fab_rule_spec *spec;
	uint32_t seen; /* 1 << enum key */
	char *why;
	size_t why_len;
};

static int trigger_parse(struct parse *parse, enum fab_trigger trigger, const char *key,
			 const char *value)
{
	if (parse->spec->trigger != FAB_TRIG_NOW) {
		snprintf(parse->why, parse->why_len, "'%s=' is a second trigger, one is allowed",
			 key);
		return -EINVAL;
	}
	parse->spec->trigger = trigger;
	return fab_number_parse(key, value, UINT64_MAX / 2, &parse->spec->count, parse->why,
				parse->why_len);
}

static int arg_parse(struct parse *parse, enum fab_arg arg, const char *value)
{
	int type;

	if (arg == FAB_ARG_CALL) {
		type = fab_word_find(value, call_names, FAB_CALL_COUNT, "call", parse->why,
				     parse->why_len);
		parse->spec->args[arg] = type < 0 ? 0 : (uint64_t)type;
		return type < 0 ? -EINVAL : 0;
	}
	if (arg == FAB_ARG_P) {
		return share_parse(value, &parse->spec->args[arg], parse->why, parse->why_len);
	}
	if (arg == FAB_ARG_TYPE) {
		type = fab_word_find(value, event_names, EVENT_COUNT, "type", parse->why,
				     parse->why_len);
		parse->spec->args[arg] = type < 0 ? 0 : (uint64_t)event_types[type];
		return type < 0 ? -EINVAL : 0;
	}
	return fab_number_parse(key_names[KEY_ARGS + (int)arg], value, arg_max[arg],
				&parse->spec->args[arg], parse->why, parse->why_len);
}

static int key_parse(struct parse *parse, enum key key, const char *value)
{
	struct fab_rule_spec *spec = parse->spec;
	const char *name = key_names[key];
	uint64_t number = 0;
	int rc = 0;

	switch (key) {
	case KEY_HOST:
		rc = fab_number_parse(name, value, FAB_MAX_HOSTS - 1, &number, parse->why,
				      parse->why_len);
		spec->host = (uint32_t)number;
		return rc;
	case KEY_RAIL:
		rc = fab_number_parse(name, value, FAB_MAX_RAILS - 1, &number, parse->why,
				      parse->why_len);
		spec->rail = (uint32_t)number;
		return rc;
	case KEY_DIR:
		rc = fab_word_find(value, dir_names, 3, "dir", parse->why, parse->why_len);
		spec->dirs = rc == 2 ? FAB_DIR_BOTH : 1u << (rc & 1);
		return rc < 0 ? -EINVAL : 0;
	case KEY_EDGE:
		rc = fab_word_find(value, edge_names, FAB_EDGE_COUNT, "edge", parse->why,
				   parse->why_len);
		spec->edge = (enum fab_edge)(rc < 0 ? 0 : rc);
		return rc < 0 ? -EINVAL : 0;
	case KEY_BYTES:
		return trigger_parse(parse, FAB_TRIG_BYTES, name, value);
	case KEY_WRITES:
		return trigger_parse(parse, FAB_TRIG_WRITES, name, value);
	case KEY_IMMS:
		return trigger_parse(parse, FAB_TRIG_IMMS, name, value);
	case KEY_MS:
		return trigger_parse(parse, FAB_TRIG_MS, name, value);
	case KEY_ARGS:
	case KEY_COUNT:
	default:
		return arg_parse(parse, (enum fab_arg)(key - KEY_ARGS), value);
	}
}

/* Each action has the arguments that are its own, and no others. */
static int args_check(const struct parse *parse)
{
	enum fab_action action = parse->spec->action;

	for (int key = KEY_ARGS; key < KEY_COUNT; key++) {
		bool given = (parse->seen & KEY_BIT(key)) != 0;
		bool needed = (action_needs[action] & KEY_BIT(key)) != 0;
		bool may = (action_may[action] & KEY_BIT(key)) != 0 || key == KEY_OF(AFTER_MS);

		if (needed && !given) {
			snprintf(parse->why, parse->why_len, "'%s' needs '%s='",
				 action_names[action], key_names[key]);
			return -EINVAL;
		}
		if (given && !needed && !may) {
			snprintf(parse->why, parse->why_len,
				 "'%s=' goes with other actions, not with '%s'", key_names[key],
				 action_names[action]);
			return -EINVAL;
		}
	}
	return 0;
}

/* What the words mean together. */
static int rule_check(const struct parse *parse)
{
	const struct fab_rule_spec *spec = parse->spec;
	const char *bad = NULL;

	if ((parse->seen & 1u << KEY_HOST) == 0) {
		bad = "'host=' is missing";
	} else if ((parse->seen & 1u << KEY_RAIL) == 0) {
		bad = "'rail=' is missing";
	} else if ((parse->seen & 1u << KEY_EDGE) != 0 && spec->trigger != FAB_TRIG_IMMS) {
		bad = "'edge=' goes with 'imms=' only";
	} else if ((parse->seen & ARG_BIT(AFTER_MS)) != 0 && !fab_rule_counts(spec->trigger)) {
		bad = "'after_ms=' goes with 'bytes=', 'writes=' and 'imms=' only";
	} else if (fab_rule_counts(spec->trigger) && spec->count == 0) {
		bad = "a trigger counts from 1";
	}
	if (bad == NULL) {
		return args_check(parse);
	}
	snprintf(parse->why, parse->why_len, "%s", bad);
	return -EINVAL;
}

static int word_parse(struct parse *parse, char *word)
{
	struct fab_keys keys = {.names = key_names, .count = KEY_COUNT, .seen = &parse->seen};
	char *value;
	int key = fab_key_split(&keys, word, &value, parse->why, parse->why_len);

	return key < 0 ? -EINVAL : key_parse(parse, (enum key)key, value);
}

int fab_rule_parse(const char *text, struct fab_rule_spec *spec, char *why, size_t why_len)
{
	struct fab_rule_spec made = {.edge = FAB_EDGE_AFTER, .dirs = FAB_DIR_BOTH};
	struct parse parse = {.spec = &made, .why = why, .why_len = why_len};
	char copy[FAB_RULE_TEXT_LEN];
	char *rest = NULL;
	char *word;
	int action;

	if (snprintf(copy, sizeof(copy), "%s", text) >= (int)sizeof(copy)) {
		snprintf(why, why_len, "longer than %zu characters", sizeof(copy) - 1);
		return -EINVAL;
	}
	copy[strcspn(copy, "#\r\n")] = '\0';
	for (char *c = copy; *c != '\0'; c++) {
		if (*c == '\t') {
			*c = ' '; /* the text goes into JSON as it is */
		}
	}
	memcpy(made.text, copy, sizeof(copy));
	word = strtok_r(copy, " \t", &rest);
	if (word == NULL) {
		snprintf(why, why_len, "no action");
		return -EINVAL;
	}
	action = fab_word_find(word, action_names, FAB_ACT_COUNT, "action", why, why_len);
	if (action < 0) {
		return -EINVAL;
	}
	made.action = (enum fab_action)action;
	for (word = strtok_r(NULL, " \t", &rest); word != NULL;
	     word = strtok_r(NULL, " \t", &rest)) {
		if (word_parse(&parse, word) != 0) {
			return -EINVAL;
		}
	}
	if (rule_check(&parse) != 0) {
		return -EINVAL;
	}
	*spec = made;
	return 0;
}
