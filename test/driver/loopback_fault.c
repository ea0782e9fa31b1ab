/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/loopback.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	SCRIBBLE = 0x5a,
	SCRIBBLE_BYTES = 8
};

/** The fault this process was told in LOOPBACK_FAULT, and the message it is for. */
static enum loopback_fault fault_told(uint64_t *seq)
{
#define LOOPBACK_NAME(id, name, help) [LOOPBACK_##id] = name,
	static const char *const names[LOOPBACK_FAULT_COUNT] = {
		LOOPBACK_FAULT_TABLE(LOOPBACK_NAME)};
#undef LOOPBACK_NAME
	const char *told = getenv("LOOPBACK_FAULT");
	size_t len = told ? strcspn(told, ":") : 0;

	*seq = told && told[len] ? strtoull(told + len + 1, NULL, 10) : 5;
	for (int i = 0; told && i < LOOPBACK_FAULT_COUNT; i++) {
		if (strlen(names[i]) == len && !strncmp(names[i], told, len)) {
			return (enum loopback_fault)i;
		}
	}
	return LOOPBACK_NONE;
}

bool loopback_fault_is(const struct loopback_request *request, enum loopback_fault fault)
{
	uint64_t seq;

	return fault_told(&seq) == fault && request->seq == seq;
}

static bool is_covered(const struct loopback_comm *comm, const unsigned char *at)
{
	for (int i = 0; i < LOOPBACK_REQUESTS; i++) {
		const struct loopback_request *request = &comm->requests[i];

		if (request->busy && at >= request->data &&
		    at < request->data + request->len_bytes) {
			return true;
		}
	}
	return false;
}

void loopback_fault_late(struct loopback_comm *comm)
{
	if (comm->late_at && !is_covered(comm, comm->late_at)) {
		*comm->late_at ^= SCRIBBLE;
		comm->late_at = NULL;
	}
}

static size_t kept_bytes(const struct loopback_request *request)
{
	return request->len_bytes < LOOPBACK_KEPT_BYTES ? request->len_bytes : LOOPBACK_KEPT_BYTES;
}

static int receive_spoil(struct loopback_request *request, enum loopback_fault fault, int *done,
			 int *size)
{
	struct loopback_comm *comm = request->comm;
	size_t middle = request->len_bytes / 2;

	switch (fault) {
	case LOOPBACK_CORRUPT:
		request->data[middle] ^= 1;
		break;
	case LOOPBACK_LATE:
		comm->late_at = request->data + middle;
		break;
	case LOOPBACK_DUPLICATE:
		memcpy(request->data, comm->previous, kept_bytes(request));
		break;
	case LOOPBACK_DROP:
		memcpy(request->data, request->old, kept_bytes(request));
		break;
	case LOOPBACK_LOSE:
		*done = 0;
		break;
	case LOOPBACK_OVERRUN:
		memset(request->data + request->len_bytes, SCRIBBLE, SCRIBBLE_BYTES);
		break;
	case LOOPBACK_UNDERRUN:
		memset(request->data - SCRIBBLE_BYTES, SCRIBBLE, SCRIBBLE_BYTES);
		break;
	case LOOPBACK_SIZE:
		*size += 4;
		break;
	case LOOPBACK_ERROR:
		return -EIO;
	case LOOPBACK_TORN:
		/* First 4 bytes of the middle unit: wrong when first looked at, right when done. */
		request->data[middle & ~(size_t)7] ^= SCRIBBLE;
		*done = request->visits > 0;
		break;
	case LOOPBACK_NONE:
	case LOOPBACK_REQUEST:
	case LOOPBACK_EAGER:
	case LOOPBACK_AFTER:
	case LOOPBACK_FAULT_COUNT:
		break;
	}
	return 0;
}

int loopback_fault_apply(struct loopback_request *request, int *done, int *size)
{
	struct loopback_comm *comm = request->comm;
	uint64_t seq;
	enum loopback_fault fault = fault_told(&seq);
	int err = 0;

	if (comm->sends) {
		return 0;
	}
	if (request->seq == seq && request->len_bytes) {
		err = receive_spoil(request, fault, done, size);
	}
	memcpy(comm->previous, request->data, kept_bytes(request));
	comm->last_at = fault == LOOPBACK_AFTER && request->len_bytes ? request->data : NULL;
	return err;
}
