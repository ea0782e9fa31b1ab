/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/job.h"

const char *op_name(enum op_kind op)
{
	static const char *const names[OP_KIND_COUNT] = {
		[OP_ALLREDUCE] = "allreduce",
		[OP_ALLTOALL] = "alltoall",
		[OP_SENDRECV] = "sendrecv",
		[OP_STREAM] = "stream",
	};

	return names[op];
}

const char *proto_name(enum proto_kind proto)
{
	static const char *const names[PROTO_KIND_COUNT] = {
		[PROTO_SIMPLE] = "simple",
		[PROTO_LL] = "ll",
		[PROTO_DIRECT] = "direct",
	};

	return names[proto];
}

static uint32_t flags_count(const bool *flags, uint32_t max)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < max; i++) {
		count += flags[i] ? 1 : 0;
	}
	return count;
}

/** Index of the nth flag that is set; there are more than nth of them. */
static uint32_t flags_nth(const bool *flags, uint32_t nth)
{
	uint32_t i = 0;

	while (!flags[i] || nth--) {
		i++;
	}
	return i;
}

static uint32_t proto_rounds(const struct options *opt)
{
	uint32_t count = flags_count(opt->protos, PROTO_KIND_COUNT);

	return opt->mix || !count ? 1 : count;
}

static uint32_t op_rounds(const struct options *opt)
{
	uint32_t count = flags_count(opt->ops, OP_KIND_COUNT);

	return count ? count : 1;
}

uint32_t job_count(const struct options *opt)
{
	return op_rounds(opt) * proto_rounds(opt) * opt->size_count * opt->iter_count;
}

struct job job_at(const struct options *opt, uint32_t iter)
{
	/* A train changes all of it from one iteration to the next. */
	uint32_t round = opt->train.armed ? iter : iter / opt->iter_count;
	uint32_t size_idx = round % opt->size_count;
	uint32_t proto_idx = round / opt->size_count % proto_rounds(opt);
	uint32_t op_idx = round / opt->size_count / proto_rounds(opt);
	struct job job = {
		.iter = iter,
		.op = (enum op_kind)flags_nth(opt->ops, op_idx % op_rounds(opt)),
		.size_bytes = opt->sizes[size_idx],
	};

	job.proto = opt->mix ? (enum proto_kind)(iter % PROTO_KIND_COUNT)
			     : (enum proto_kind)flags_nth(opt->protos, proto_idx);
	return job;
}

bool job_uses_proto(const struct options *opt, enum proto_kind proto)
{
	return opt->mix || opt->protos[proto];
}

uint64_t job_size_max(const struct options *opt)
{
	uint64_t max = 0;

	for (uint32_t i = 0; i < opt->size_count; i++) {
		max = opt->sizes[i] > max ? opt->sizes[i] : max;
	}
	return max;
}
