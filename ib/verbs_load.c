/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/verbs_load.h"

#include <dlfcn.h>
#include <string.h>

#define PACKAGE_HINT "install libibverbs1 (Debian, Ubuntu) or libibverbs (RHEL, SUSE: rdma-core)"

enum {
	TRIED_MAX_BYTES = 512
};

/* Append ", <text>" as far as it fits. */
static void tried_add(char *tried, const char *text)
{
	size_t used = strlen(tried);

	if (used > 0 && used + 2 < TRIED_MAX_BYTES) {
		strcpy(tried + used, "; ");
		used += 2;
	}
	strncpy(tried + used, text, TRIED_MAX_BYTES - 1 - used);
}

static void *open_one(const char *name, char *tried)
{
	void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);

	if (lib == NULL) {
		const char *why = dlerror();

		tried_add(tried, why != NULL ? why : name);
	}
	return lib;
}

/* ISO C has no conversion from void * to a function pointer; POSIX wants it to work. */
static bool symbol(void *lib, const char *name, void *out)
{
	void *found = dlsym(lib, name);

	memcpy(out, &found, sizeof(found));
	return found != NULL;
}

static const char *fill(void *lib, struct ib_verbs_syms *out)
{
#define FILL_REQUIRED(ret, name, params)                                                           \
	if (!symbol(lib, "ibv_" #name, &out->name)) {                                              \
		return "ibv_" #name;                                                               \
	}
#define FILL_OPTIONAL(ret, name, params) (void)symbol(lib, "ibv_" #name, &out->name);
	IB_VERBS_REQUIRED(FILL_REQUIRED)
	IB_VERBS_OPTIONAL(FILL_OPTIONAL)
	(void)symbol(lib, "_ibv_query_gid_ex", &out->query_gid_ex);
#undef FILL_REQUIRED
#undef FILL_OPTIONAL
	return NULL;
}

int ib_verbs_library_open(const char *const *names, unsigned int count, struct ib_verbs_syms *out)
{
	char tried[TRIED_MAX_BYTES] = "";
	const char *name = NULL;
	const char *missing;
	struct ib_verbs_syms syms;
	void *lib = NULL;

	for (unsigned int i = 0; lib == NULL && i < count; i++) {
		name = names[i];
		if (name != NULL && name[0] != '\0') {
			lib = open_one(name, tried);
		}
	}
	if (lib == NULL) {
		LOG_WARN("no InfiniBand or RoCE: cannot open libibverbs (%s); " PACKAGE_HINT,
			 tried);
		return -ENOENT;
	}
	memset(&syms, 0, sizeof(syms));
	missing = fill(lib, &syms);
	if (missing != NULL) {
		LOG_WARN("no InfiniBand or RoCE: %s has no symbol %s, it is too old or no "
			 "libibverbs; " PACKAGE_HINT,
			 name, missing);
		dlclose(lib);
		return -ENOSYS;
	}
	*out = syms;
	return 0;
}
