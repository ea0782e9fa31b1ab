/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/netapi.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>

int netapi_load(struct netapi *api, const char *path, int version)
{
	static const struct netapi_ops *const ops[] = {
		[6] = &netapi_ops_v6,   [7] = &netapi_ops_v7,   [8] = &netapi_ops_v8,
		[9] = &netapi_ops_v9,   [10] = &netapi_ops_v10, [11] = &netapi_ops_v11,
		[12] = &netapi_ops_v12,
	};
	char symbol[32];

	if (version < 6 || (size_t)version >= sizeof(ops) / sizeof(ops[0])) {
		return -EINVAL;
	}
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (!lib) {
		fprintf(stderr, "driver: cannot load the plugin: %s\n", dlerror());
		return -ENOENT;
	}
	snprintf(symbol, sizeof(symbol), "ncclNetPlugin_v%d", version);
	const void *table = dlsym(lib, symbol);

	if (!table) {
		fprintf(stderr, "driver: %s has no %s\n", path, symbol);
		dlclose(lib);
		return -ENOSYS;
	}
	/* Every table starts with the name, and the name must be valid before init. */
	*api = (struct netapi){.version = version,
			       .name = *(const char *const *)table,
			       .lib = lib,
			       .table = table,
			       .ops = ops[version]};
	return 0;
}

void netapi_unload(struct netapi *api)
{
	if (api->lib) {
		dlclose(api->lib);
		api->lib = NULL;
	}
}
