/* SPDX-License-Identifier: Apache-2.0 */
#include "test/nccl/matrix/nccl_api.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static int find(void *library, const char *symbol, void *place, size_t len)
{
	void *found = dlsym(library, symbol);

	if (found == NULL) {
		fprintf(stderr, "nccl_matrix: this NCCL has no %s\n", symbol);
		return -ENOENT;
	}
	memcpy(place, &found, len); /* a function pointer: no cast is right in C */
	return 0;
}

int nccl_api_open(const char *path, struct nccl_api *api)
{
	void *library = dlopen(path != NULL ? path : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL);

	if (library == NULL) {
		fprintf(stderr, "nccl_matrix: %s\n", dlerror());
		return -ENOENT;
	}
#define NCCL_API_FIND(field, symbol, arguments)                                                    \
	if (find(library, symbol, &api->field, sizeof(api->field)) != 0) {                         \
		return -ENOENT;                                                                    \
	}
	NCCL_API_LIST(NCCL_API_FIND)
#undef NCCL_API_FIND
	return 0;
}

const char *nccl_result_name(int result)
{
	static const char *const names[] = {
		"success",          "unhandled CUDA error", "system error", "internal error",
		"invalid argument", "invalid usage",        "remote error", "in progress",
	};

	return result >= 0 && result < (int)(sizeof(names) / sizeof(names[0])) ? names[result]
									       : "?";
}
