/* SPDX-License-Identifier: Apache-2.0 */
#include "test/nccl/matrix/op.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ITEM_LEN 32

static const char *const coll_names[] = {
	[OP_ALL_REDUCE] = "all_reduce",
	[OP_ALL_GATHER] = "all_gather",
	[OP_REDUCE_SCATTER] = "reduce_scatter",
	[OP_BROADCAST] = "broadcast",
	[OP_REDUCE] = "reduce",
	[OP_ALL_TO_ALL] = "all_to_all",
	[OP_RING] = "ring",
};
static const char *const type_names[] = {
	[VALUE_FLOAT] = "float", [VALUE_HALF] = "half",   [VALUE_BFLOAT16] = "bfloat16",
	[VALUE_INT32] = "int32", [VALUE_INT64] = "int64",
};
static const char *const red_names[] = {
	[VALUE_SUM] = "sum",
	[VALUE_MAX] = "max",
	[VALUE_MIN] = "min",
	[VALUE_AVG] = "avg",
};
static const char *const place_names[] = {
	[OP_OUT_OF_PLACE] = "out",
	[OP_IN_PLACE] = "in",
};

static_assert(sizeof(coll_names) / sizeof(coll_names[0]) == OP_COLL_COUNT, "a name each");
static_assert(sizeof(type_names) / sizeof(type_names[0]) == VALUE_TYPE_COUNT, "a name each");
static_assert(sizeof(red_names) / sizeof(red_names[0]) == VALUE_RED_COUNT, "a name each");
static_assert(sizeof(place_names) / sizeof(place_names[0]) == OP_PLACE_COUNT, "a name each");

const char *op_coll_name(enum op_coll coll)
{
	return coll_names[coll];
}

const char *op_type_name(enum value_type type)
{
	return type_names[type];
}

const char *op_red_name(enum value_red red)
{
	return red_names[red];
}

static unsigned list_len(const char *list)
{
	unsigned len = 1;

	for (; (list = strchr(list, ',')) != NULL; list++) {
		len++;
	}
	return len;
}

/* Takes the item of `list` that *idx's lowest digit names, and that digit off *idx. */
static int take(const struct plan_line *line, const char *list, unsigned *idx, char *item)
{
	unsigned len = list_len(list);
	int rc = plan_item(list, *idx % len, item, ITEM_LEN);

	*idx /= len;
	if (rc != 0) {
		fprintf(stderr, "nccl_matrix: plan line %u: bad list '%s'\n", line->number, list);
	}
	return rc;
}

static int take_name(const struct plan_line *line, const char *list, unsigned *idx,
		     const char *const *names, unsigned *value)
{
	unsigned count = names == coll_names   ? OP_COLL_COUNT
			 : names == type_names ? VALUE_TYPE_COUNT
			 : names == red_names  ? VALUE_RED_COUNT
					       : OP_PLACE_COUNT;
	char item[ITEM_LEN];

	if (take(line, list, idx, item) != 0) {
		return -EINVAL;
	}
	for (unsigned i = 0; i < count; i++) {
		if (strcmp(item, names[i]) == 0) {
			*value = i;
			return 0;
		}
	}
	fprintf(stderr, "nccl_matrix: plan line %u: unknown '%s'\n", line->number, item);
	return -EINVAL;
}

static bool has_reduction(enum op_coll coll)
{
	return coll == OP_ALL_REDUCE || coll == OP_REDUCE_SCATTER || coll == OP_REDUCE;
}

/* Left out: a second reduction of what reduces nothing, in place where there is no such thing, and
 * an average of floats over a number of ranks by which they cannot be divided exactly. */
static bool is_sensible(const struct op *op, int rank_count, bool is_first_red)
{
	if (!has_reduction(op->coll) && !is_first_red) {
		return false;
	}
	if (op->place == OP_IN_PLACE && (op->coll == OP_ALL_TO_ALL || op->coll == OP_RING)) {
		return false;
	}
	bool is_float =
		op->type == VALUE_FLOAT || op->type == VALUE_HALF || op->type == VALUE_BFLOAT16;

	return op->red != VALUE_AVG || !has_reduction(op->coll) || !is_float ||
	       (rank_count & (rank_count - 1)) == 0;
}

/* The idx-th of all combinations. *is_sense tells whether it is to be run. */
static int combination(const struct plan_line *line, int rank_count, unsigned idx, struct op *op,
		       bool *is_sense)
{
	unsigned values[4] = {0};
	char item[ITEM_LEN];
	const char *root = plan_text(line, "root", NULL);
	uint64_t number = 0;
	unsigned before_red;
	int rc = take(line, plan_text(line, "bytes", "1M"), &idx, item);

	rc = rc == 0 ? plan_parse_number(item, &op->bytes) : rc;
	rc = rc == 0 ? take_name(line, plan_text(line, "place", "out"), &idx, place_names,
				 &values[3])
		     : rc;
	rc = rc == 0 ? take(line, plan_text(line, "reg", "0"), &idx, item) : rc;
	op->is_registered = rc == 0 && strcmp(item, "1") == 0;
	before_red = idx;
	rc = rc == 0 ? take_name(line, plan_text(line, "red", "sum"), &idx, red_names, &values[2])
		     : rc;
	bool is_first_red = before_red % list_len(plan_text(line, "red", "sum")) == 0;

	rc = rc == 0 ? take_name(line, plan_text(line, "type", "float"), &idx, type_names,
				 &values[1])
		     : rc;
	rc = rc == 0 ? take_name(line, plan_text(line, "coll", "all_reduce"), &idx, coll_names,
				 &values[0])
		     : rc;
	if (rc != 0) {
		return -EINVAL;
	}
	if (plan_number(line, "root", 0, &number) != 0) {
		return -EINVAL;
	}
	op->root = root != NULL ? (int64_t)number : -1;
	op->coll = (enum op_coll)values[0];
	op->type = (enum value_type)values[1];
	op->red = (enum value_red)values[2];
	op->place = (enum op_place)values[3];
	*is_sense = is_sensible(op, rank_count, is_first_red);
	return idx > 0 ? -ENOENT : 0;
}

int op_pick(const struct plan_line *line, int rank_count, unsigned idx, struct op *op)
{
	unsigned seen = 0;

	for (unsigned at = 0;; at++) {
		bool is_sense = false;
		int rc = combination(line, rank_count, at, op, &is_sense);

		if (rc != 0) {
			return rc;
		}
		if (is_sense && seen++ == idx) {
			return 0;
		}
	}
}
