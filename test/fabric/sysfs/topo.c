/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/sysfs/topo.h"

#include "test/fabric/words.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LINE_LEN 1024

enum key {
	KEY_PCI,
	KEY_NUMA,
	KEY_PORTS,
	KEY_LINK,
	KEY_SPEED,
	KEY_GIDS,
	KEY_NETDEV,
	KEY_BOND,
	KEY_VF_OF,
	KEY_COUNT,
};

static const char *const key_names[KEY_COUNT] = {"pci",  "numa",   "ports", "link", "speed",
						 "gids", "netdev", "bond",  "vf_of"};
static const char *const link_names[] = {"ib", "roce"};
static const char *const kind_names[FAB_GID_KIND_COUNT] = {"ll-v1",  "ll-v2",  "ip4-v1",
							   "ip4-v2", "ip6-v2", "empty"};

unsigned int fab_gid_kind_version(enum fab_gid_kind kind)
{
	switch (kind) {
	case FAB_GID_LL_V1:
	case FAB_GID_IP4_V1:
		return 1;
	case FAB_GID_LL_V2:
	case FAB_GID_IP4_V2:
	case FAB_GID_IP6_V2:
		return 2;
	case FAB_GID_EMPTY:
	case FAB_GID_KIND_COUNT:
	default:
		return 0;
	}
}

const struct fab_topo_device *fab_topo_find(const struct fab_topo *topo, const char *name)
{
	for (uint32_t i = 0; i < topo->device_count; i++) {
		if (strcmp(topo->devices[i].name, name) == 0) {
			return &topo->devices[i];
		}
	}
	return NULL;
}

struct parse {
	struct fab_topo *topo;
	struct fab_topo_device *device; /* of this line */
	uint32_t seen;                  /* 1 << enum key */
	char *why;
	size_t why_len;
};

/* A name that goes into paths: no slash, not hidden, not too long. */
static int name_parse(const struct parse *parse, const char *what, const char *text, char *out)
{
	size_t len = strlen(text);

	if (len == 0 || len >= FAB_TOPO_NAME_LEN || text[0] == '.' || strchr(text, '/') != NULL) {
		snprintf(parse->why, parse->why_len, "%s '%s' is not a name of up to %u characters",
			 what, text, FAB_TOPO_NAME_LEN - 1);
		return -EINVAL;
	}
	memcpy(out, text, len + 1);
	return 0;
}

/* pciDDDD:BB, then at least one DDDD:BB:DD.F, with slashes between. */
static int pci_parse(const struct parse *parse, const char *text)
{
	unsigned int n[4];
	const char *at = text;
	int used = 0;
	bool good = sscanf(at, "pci%4x:%2x%n", &n[0], &n[1], &used) == 2 && at[used] == '/';

	while (good && at[used] == '/') {
		at += used + 1;
		used = 0;
		good = sscanf(at, "%4x:%2x:%2x.%1x%n", &n[0], &n[1], &n[2], &n[3], &used) == 4 &&
		       used == 12;
	}
	if (!good || at[used] != '\0' || strlen(text) >= FAB_TOPO_PATH_LEN) {
		snprintf(parse->why, parse->why_len,
			 "pci='%s' is not a path such as pci0000:10/0000:10:01.0/0000:1a:00.0",
			 text);
		return -EINVAL;
	}
	strcpy(parse->device->pci, text);
	return 0;
}

static int gids_parse(const struct parse *parse, char *text)
{
	struct fab_topo_device *device = parse->device;
	char *rest = NULL;

	for (char *word = strtok_r(text, ",", &rest); word != NULL;
	     word = strtok_r(NULL, ",", &rest)) {
		int kind = fab_word_find(word, kind_names, FAB_GID_KIND_COUNT, "kind of GID",
					 parse->why, parse->why_len);

		if (kind < 0) {
			return -EINVAL;
		}
		if (device->gid_count == FAB_TOPO_GIDS_MAX) {
			snprintf(parse->why, parse->why_len, "more than %u GIDs",
				 FAB_TOPO_GIDS_MAX);
			return -EINVAL;
		}
		device->gids[device->gid_count++] = (enum fab_gid_kind)kind;
	}
	return 0;
}

static int bond_parse(const struct parse *parse, char *text)
{
	struct fab_topo_device *device = parse->device;
	char *rest = NULL;

	for (char *word = strtok_r(text, ",", &rest); word != NULL;
	     word = strtok_r(NULL, ",", &rest)) {
		if (device->bond_count == FAB_TOPO_BOND_MAX) {
			snprintf(parse->why, parse->why_len, "more than %u netdevs in a bond",
				 FAB_TOPO_BOND_MAX);
			return -EINVAL;
		}
		if (name_parse(parse, "bond", word, device->bond[device->bond_count]) != 0) {
			return -EINVAL;
		}
		device->bond_count++;
	}
	return 0;
}

static int key_parse(const struct parse *parse, enum key key, char *value)
{
	struct fab_topo_device *device = parse->device;
	uint64_t max = key == KEY_NUMA ? 1023 : key == KEY_PORTS ? FAB_TOPO_PORTS_MAX : 1600;
	uint64_t number = 0;
	int rc;

	switch (key) {
	case KEY_PCI:
		return pci_parse(parse, value);
	case KEY_GIDS:
		return gids_parse(parse, value);
	case KEY_BOND:
		return bond_parse(parse, value);
	case KEY_NETDEV:
		return name_parse(parse, "netdev", value, device->netdev);
	case KEY_VF_OF:
		return name_parse(parse, "vf_of", value, device->vf_of);
	case KEY_LINK:
		rc = fab_word_find(value, link_names, 2, "link", parse->why, parse->why_len);
		device->roce = rc == 1;
		return rc < 0 ? -EINVAL : 0;
	case KEY_NUMA:
	case KEY_PORTS:
	case KEY_SPEED:
	case KEY_COUNT:
	default:
		break;
	}
	rc = fab_number_parse(key_names[key], value, max, &number, parse->why, parse->why_len);
	if (rc == 0 && number == 0 && key != KEY_NUMA) {
		snprintf(parse->why, parse->why_len, "%s= counts from 1", key_names[key]);
		return -EINVAL;
	}
	if (key == KEY_NUMA) {
		device->numa_node = (int)number;
	} else if (key == KEY_PORTS) {
		device->port_count = (uint32_t)number;
	} else {
		device->speed_gbps = (uint32_t)number;
	}
	return rc;
}

static int word_parse(struct parse *parse, char *word)
{
	struct fab_keys keys = {.names = key_names, .count = KEY_COUNT, .seen = &parse->seen};
	char *value;
	int key = fab_key_split(&keys, word, &value, parse->why, parse->why_len);

	return key < 0 ? -EINVAL : key_parse(parse, (enum key)key, value);
}

/* What the words mean together, and with the lines before. */
static int device_check(const struct parse *parse)
{
	const struct fab_topo_device *device = parse->device;
	const struct fab_topo_device *pf = fab_topo_find(parse->topo, device->vf_of);
	const char *bad = NULL;

	if (fab_topo_find(parse->topo, device->name) != NULL) {
		bad = "there is a device of that name above";
	} else if (device->gid_count > 0 && !device->roce) {
		bad = "'gids=' goes with 'link=roce' only";
	} else if (device->bond_count > 0 && device->netdev[0] == '\0') {
		bad = "'bond=' needs 'netdev=', the name of the bond";
	} else if (device->vf_of[0] != '\0' && (pf == NULL || pf->pci[0] == '\0')) {
		bad = "'vf_of=' names no PCI device of a line above";
	} else if (device->vf_of[0] != '\0' && device->pci[0] == '\0') {
		bad = "'vf_of=' needs 'pci='";
	} else if (parse->topo->rail_count + device->port_count > FAB_MAX_RAILS) {
		bad = "more ports than a host has rails (16)";
	}
	if (bad == NULL) {
		return 0;
	}
	snprintf(parse->why, parse->why_len, "device %s: %s", device->name, bad);
	return -EINVAL;
}

/* 0 also for a line with nothing on it. */
static int line_parse(struct fab_topo *topo, char *line, char *why, size_t why_len)
{
	static const char *const words[] = {"device"};
	struct fab_topo_device device = {.numa_node = -1, .port_count = 1, .speed_gbps = 100};
	struct parse parse = {.topo = topo, .device = &device, .why = why, .why_len = why_len};
	char *rest = NULL;
	char *word;

	line[strcspn(line, "#\r\n")] = '\0';
	word = strtok_r(line, " \t", &rest);
	if (word == NULL) {
		return 0;
	}
	if (fab_word_find(word, words, 1, "word", why, why_len) < 0) {
		return -EINVAL;
	}
	word = strtok_r(NULL, " \t", &rest);
	if (name_parse(&parse, "device", word != NULL ? word : "", device.name) != 0) {
		return -EINVAL;
	}
	for (word = strtok_r(NULL, " \t", &rest); word != NULL;
	     word = strtok_r(NULL, " \t", &rest)) {
		if (word_parse(&parse, word) != 0) {
			return -EINVAL;
		}
	}
	if (device_check(&parse) != 0) {
		return -EINVAL;
	}
	device.first_rail = topo->rail_count;
	topo->rail_count += device.port_count;
	topo->devices[topo->device_count++] = device;
	return 0;
}

int fab_topo_load(const char *path, struct fab_topo *out, char *why, size_t why_len)
{
	struct fab_topo topo = {.device_count = 0};
	char line[LINE_LEN];
	FILE *file = fopen(path, "re");
	int rc = 0;

	if (file == NULL) {
		rc = -errno;
		snprintf(why, why_len, "%s: %s", path, strerror(-rc));
		return rc;
	}
	for (unsigned int number = 1; rc == 0 && fgets(line, sizeof(line), file) != NULL;
	     number++) {
		int used = snprintf(why, why_len, "%s:%u: ", path, number);
		size_t at = used < (int)why_len ? (size_t)used : 0;

		if (strchr(line, '\n') == NULL && !feof(file)) {
			snprintf(why + at, why_len - at, "longer than %d characters", LINE_LEN - 2);
			rc = -EINVAL;
		} else {
			rc = line_parse(&topo, line, why + at, why_len - at);
		}
	}
	fclose(file);
	if (rc == 0) {
		*out = topo;
	}
	return rc;
}
