/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/lib.h"

#include "test/fabric/rule.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

static struct fab_lib lib;
static int lib_rc;
static pthread_once_t lib_once = PTHREAD_ONCE_INIT;

/* A whole number from the environment. -EINVAL, said on stderr, when it is none or above max. */
static int env_number(const char *name, uint64_t fallback, uint64_t max, uint64_t *value)
{
	const char *text = getenv(name);
	char *end;

	*value = fallback;
	if (text == NULL || text[0] == '\0') {
		return 0;
	}
	errno = 0;
	*value = strtoull(text, &end, 10);
	if (*end != '\0' || errno != 0 || *value > max) {
		fab_complain("%s='%s' is not a whole number up to %llu", name, text,
			     (unsigned long long)max);
		return -EINVAL;
	}
	return 0;
}

/* One of two words. */
static int env_choice(const char *name, const char *first, const char *second, bool *is_second)
{
	const char *text = getenv(name);

	*is_second = false;
	if (text == NULL || text[0] == '\0' || strcmp(text, first) == 0) {
		return 0;
	}
	if (strcmp(text, second) == 0) {
		*is_second = true;
		return 0;
	}
	fab_complain("%s='%s' is neither '%s' nor '%s'", name, text, first, second);
	return -EINVAL;
}

/* One number for all rails, or one for each. */
static int env_rates(void)
{
	const char *text = getenv("FABRIC_RATE_MBPS");
	uint32_t given = 0;

	if (text == NULL || text[0] == '\0') {
		return 0;
	}
	for (const char *at = text; given < FAB_MAX_RAILS;) {
		char *end;

		lib.rate_mbps[given++] = strtoull(at, &end, 10);
		if (end == at || (*end != '\0' && *end != ',')) {
			fab_complain("FABRIC_RATE_MBPS='%s': numbers with commas between", text);
			return -EINVAL;
		}
		if (*end == '\0') {
			break;
		}
		at = end + 1;
	}
	for (uint32_t i = 1; given == 1 && i < FAB_MAX_RAILS; i++) {
		lib.rate_mbps[i] = lib.rate_mbps[0];
	}
	if (given > 1 && given < lib.rail_count) {
		fab_complain("FABRIC_RATE_MBPS='%s': %u rates for %u rails", text, given,
			     lib.rail_count);
		return -EINVAL;
	}
	return 0;
}

/* The made-up host says how many rails there are; a number given beside it must agree. */
static int env_topo(void)
{
	const char *path = getenv("FABRIC_TOPO");
	const char *rails = getenv("FABRIC_RAILS");
	char why[512];

	if (path == NULL || path[0] == '\0') {
		return 0;
	}
	if (fab_topo_load(path, &lib.topo, why, sizeof(why)) != 0) {
		fab_complain("FABRIC_TOPO: %s", why);
		return -EINVAL;
	}
	if (rails != NULL && rails[0] != '\0' && lib.rail_count != lib.topo.rail_count) {
		fab_complain("FABRIC_RAILS=%u, but the devices in FABRIC_TOPO=%s have %u ports",
			     lib.rail_count, path, lib.topo.rail_count);
		return -EINVAL;
	}
	lib.rail_count = lib.topo.rail_count;
	return 0;
}

static int env_read(void)
{
	uint64_t host;
	uint64_t rails;
	uint64_t latency_us;
	uint64_t spin_us;

	if (env_number("FABRIC_HOST", 0, FAB_MAX_HOSTS - 1, &host) != 0 ||
	    env_number("FABRIC_RAILS", 2, FAB_MAX_RAILS, &rails) != 0 ||
	    env_number("FABRIC_LATENCY_US", 0, 10000000, &latency_us) != 0 ||
	    env_number("FABRIC_SPIN_US", 0, 1000000, &spin_us) != 0 ||
	    env_choice("FABRIC_LINK", "ib", "roce", &lib.roce) != 0 ||
	    env_choice("FABRIC_BROKEN", "", "fence", &lib.broken_fence) != 0 ||
	    env_choice("FABRIC_WIRING", "full", "rail", &lib.rail_wired) != 0) {
		return -EINVAL;
	}
	lib.host = (uint32_t)host;
	lib.rail_count = (uint32_t)rails;
	lib.latency_ns = latency_us * 1000;
	lib.spin_ns = spin_us * 1000;
	return env_topo() != 0 ? -EINVAL : env_rates();
}

/* The first process with FABRIC_FAULTS set installs the file's rules, for all. */
static int faults_load_once(void)
{
	const char *path = getenv("FABRIC_FAULTS");
	bool first;

	if (path == NULL || path[0] == '\0') {
		return 0;
	}
	fab_mutex_lock(&lib.root->lock);
	first = lib.root->faults_loaded == 0;
	lib.root->faults_loaded = 1;
	fab_mutex_unlock(&lib.root->lock);
	return first ? fab_rule_load(lib.root, lib.dir, path) : 0;
}

static void rates_publish(void)
{
	for (uint32_t rail = 0; rail < lib.rail_count; rail++) {
		struct fab_port *port = fab_root_port(lib.root, lib.host, rail);

		if (atomic_load_explicit(&port->rate_pinned, memory_order_relaxed) == 0) {
			atomic_store_explicit(&port->rate_bps, lib.rate_mbps[rail] * 1000000ull,
					      memory_order_relaxed);
		}
	}
}

static void devs_fill(void)
{
	bool made_up = lib.topo.device_count > 0;

	lib.dev_count = made_up ? lib.topo.device_count : lib.rail_count;
	for (uint32_t i = 0; i < lib.dev_count; i++) {
		const struct fab_topo_device *line = &lib.topo.devices[i];
		struct fab_dev *dev = &lib.first_devs[i];
		char name[sizeof(line->name)];

		lib.devs[i] = dev;
		dev->idx = i;
		dev->made_up = made_up ? line : NULL;
		dev->rail = made_up ? line->first_rail : i;
		dev->port_count = made_up ? line->port_count : 1;
		dev->roce = made_up ? line->roce : lib.roce;
		dev->ibv.node_type = IBV_NODE_CA;
		dev->ibv.transport_type = IBV_TRANSPORT_IB;
		snprintf(name, sizeof(name), "fab%u", i);
		if (made_up) {
			memcpy(name, line->name, sizeof(name));
		}
		snprintf(dev->ibv.name, sizeof(dev->ibv.name), "%s", name);
		snprintf(dev->ibv.dev_name, sizeof(dev->ibv.dev_name), "uverbs%u", i);
		snprintf(dev->ibv.dev_path, sizeof(dev->ibv.dev_path),
			 "/sys/class/infiniband_verbs/uverbs%u", i);
		snprintf(dev->ibv.ibdev_path, sizeof(dev->ibv.ibdev_path),
			 "/sys/class/infiniband/%s", name);
	}
}

/* The run's seed decides where QP numbers begin; the first process to come sets it. */
static int seed_apply(void)
{
	uint32_t first = FAB_QPN_FIRST;
	uint64_t seed;

	if (env_number("FABRIC_SEED", 0, UINT64_MAX, &seed) != 0) {
		return -EINVAL;
	}
	lib.seed = seed;
	if (seed != 0) {
		uint32_t start = (uint32_t)(seed * 0x9e3779b97f4a7c15ull >> 40) | FAB_QPN_FIRST;

		atomic_compare_exchange_strong(&lib.root->next_qpn, &first, start);
	}
	return 0;
}

static int lib_setup(void)
{
	const char *dir = getenv("FABRIC_DIR");
	int rc;

	if (dir == NULL || dir[0] == '\0') {
		fab_complain("FABRIC_DIR is not set: no devices");
		return -ENOSYS;
	}
	if (snprintf(lib.dir, sizeof(lib.dir), "%s", dir) >= (int)sizeof(lib.dir)) {
		return -ENAMETOOLONG;
	}
	rc = env_read();
	if (rc != 0) {
		return rc;
	}
	rc = fab_root_open(lib.dir, &lib.root);
	if (rc != 0) {
		fab_complain("%s: %s", lib.dir,
			     rc == -EPROTO
				     ? "made by another version of the fabric: take a fresh folder"
				     : strerror(-rc));
		return rc;
	}
	rc = seed_apply();
	if (rc != 0) {
		return rc;
	}
	/* Peers of the same user write into this process's memory, as their adapters would. */
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
	rates_publish();
	devs_fill();
	return faults_load_once();
}

static void lib_init(void)
{
	lib_rc = lib_setup();
}

struct fab_lib *fab_lib_get(void)
{
	pthread_once(&lib_once, lib_init);
	if (lib_rc != 0) {
		errno = -lib_rc;
		return NULL;
	}
	return &lib;
}
