/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/loopback.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	SCRIBBLE = 0x5a,
	SCRIBBLE_BYTES = 8,
	HOLE_AT = 2048
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

int loopback_fault_broken(struct loopback_comm *comm, int err)
{
	uint64_t seq;
	enum loopback_fault fault = fault_told(&seq);
	bool is_first = !comm->broken_told;

	comm->broken_told = true;
	if (fault == LOOPBACK_NUMB || (fault == LOOPBACK_FICKLE && !is_first)) {
		return 0;
	}
	if (fault == LOOPBACK_NONE) {
		comm->broken = err;
	}
	return err;
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

bool loopback_fault_armed(const struct loopback_request *request)
{
	uint64_t seq;

	return fault_told(&seq) != LOOPBACK_NONE && request->seq == seq;
}

void loopback_fault_strike(struct loopback_request *request)
{
	size_t len_bytes = request->header;
	/* First 4 bytes of the middle unit of ll. */
	size_t middle = len_bytes / 2 & ~(size_t)7;
	uint64_t seq;
	enum loopback_fault fault = fault_told(&seq);

	if (!len_bytes) {
		return;
	}
	if (fault == LOOPBACK_CORRUPT || fault == LOOPBACK_TORN) {
		request->bounce[middle] ^= 1;
	} else if (fault == LOOPBACK_DUPLICATE) {
		memcpy(request->bounce, request->comm->previous, kept_bytes(request));
	} else if (fault == LOOPBACK_DROP) {
		memcpy(request->bounce, request->old, kept_bytes(request));
	} else if (fault == LOOPBACK_HOLE && len_bytes >= HOLE_AT + 8) {
		memcpy(request->bounce + HOLE_AT, request->old + HOLE_AT, 8);
	} else if (fault == LOOPBACK_OVERRUN) {
		memset(request->data + len_bytes, SCRIBBLE, SCRIBBLE_BYTES);
	} else if (fault == LOOPBACK_UNDERRUN) {
		memset(request->data - SCRIBBLE_BYTES, SCRIBBLE, SCRIBBLE_BYTES);
	}
	memcpy(request->data, request->bounce, len_bytes);
}

static int report_spoil(struct loopback_request *request, enum loopback_fault fault, int *done,
			int *size)
{
	size_t middle = request->len_bytes / 2 & ~(size_t)7;

	if (fault == LOOPBACK_ERROR) {
		return -EIO;
	}
	if (fault == LOOPBACK_SIZE) {
		*size += 4;
	} else if (fault == LOOPBACK_LOSE) {
		*done = 0;
	} else if (fault == LOOPBACK_LATE) {
		request->comm->late_at = request->data + middle;
	} else if (fault != LOOPBACK_TORN && fault != LOOPBACK_CHANGE) {
		return 0;
	} else if (request->visits == 0) {
		*done = 0; /* the flags are there, but a word of the data changes yet */
	} else {
		request->data[middle] ^= 1;
	}
	return 0;
}

int loopback_fault_report(struct loopback_request *request, int *done, int *size)
{
	struct loopback_comm *comm = request->comm;
	uint64_t seq;
	enum loopback_fault fault = fault_told(&seq);
	int err = 0;

	if (comm->sends) {
		*size += fault == LOOPBACK_SEND_SIZE && request->seq == seq ? 4 : 0;
		return 0;
	}
	if (request->seq == seq && request->len_bytes) {
		err = report_spoil(request, fault, done, size);
	}
	memcpy(comm->previous, request->data, kept_bytes(request));
	comm->last_at = fault == LOOPBACK_AFTER && request->len_bytes ? request->data : NULL;
	return err;
}
