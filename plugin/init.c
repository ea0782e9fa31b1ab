/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/intern.h"
#include "include/log.h"
#include "include/nccl_net.h"
#include "plugin/connect.h"
#include "plugin/core.h"
#include "plugin/listen.h"
#include "plugin/runtime.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

/** Largest message: pieces must fit the 32-bit length of a gather entry. */
#define MESSAGE_MAX_BYTES (1ull << 30)

int plugin_init(nccl_logger_fn logger, nccl_profiler_fn profiler)
{
	(void)profiler;
	if (logger) {
		log_sink_set((log_sink_fn)logger);
	}
	return runtime_init();
}

void plugin_finalize(void)
{
	/* NCCL closes what it got before; what is left it has forgotten or never got. */
	if (runtime_fini()) {
		connect_close_all();
		listener_close_all();
	}
}

int plugin_devices(int *count)
{
	const struct runtime *rt = runtime_instance();

	*count = rt->rails ? (int)ib_rails_device_count(rt->rails) : 0;
	return 0;
}

int plugin_device_props(int dev, struct plugin_props *out)
{
	const struct runtime *rt = runtime_instance();
	const struct ib_rail *rail;

	if (!rt->rails || dev < 0 || (unsigned int)dev >= ib_rails_device_count(rt->rails)) {
		return -EINVAL;
	}
	rail = &rt->rails->rails[dev];
	/* Again: what needs a CUDA context to be tried could not be at init. */
	(void)ib_mr_ptr_support(rt->rails);
	*out = (struct plugin_props){.name = ib_intern(rail->name),
				     .pci_path = rail->pci_path,
				     .guid = rail->guid,
				     .ptr_support = atomic_load(&rail->ptr_support),
				     .reg_is_global = 1,
				     .speed_mbps = (int)rail->speed_mbps,
				     .port = rail->nccl_port,
				     .max_comms =
					     rail->max_qp > INT_MAX ? INT_MAX : (int)rail->max_qp,
				     .max_p2p_bytes = MESSAGE_MAX_BYTES,
				     .max_coll_bytes = MESSAGE_MAX_BYTES,
				     .max_multi_request = 1,
				     .rail_id = (int16_t)rail->rail_id,
				     .plane_id = (int16_t)rail->plane_id};
	return 0;
}
