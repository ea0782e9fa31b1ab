/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/pci.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Real path of <root>/class/infiniband/<device>/<leaf> into out; "" when missing or too long. */
static void real_path(const char *root, const char *device, const char *leaf, char *out)
{
	char link[PCI_PATH_MAX_BYTES];
	char resolved[PATH_MAX];
	int len = snprintf(link, sizeof(link), "%s/class/infiniband/%s/%s", root, device, leaf);

	out[0] = '\0';
	if (len < 0 || (size_t)len >= sizeof(link) || realpath(link, resolved) == NULL) {
		return;
	}
	if (strlen(resolved) < PCI_PATH_MAX_BYTES) {
		strcpy(out, resolved);
	}
}

/* "...dddd:bb:dd.f", the form of a PCI address, at the end. */
static bool is_pci_path(const char *path)
{
	const char *last = strrchr(path, '/');
	unsigned int domain, bus, device, function;
	int used = 0;

	return last != NULL &&
	       sscanf(last, "/%x:%2x:%2x.%1x%n", &domain, &bus, &device, &function, &used) == 4 &&
	       last[used] == '\0';
}

static int read_numa(const char *root, const char *device)
{
	char name[PCI_PATH_MAX_BYTES];
	int node = -1;
	FILE *file;

	(void)snprintf(name, sizeof(name), "%s/class/infiniband/%s/device/numa_node", root, device);
	file = fopen(name, "re");
	if (file == NULL) {
		return -1;
	}
	if (fscanf(file, "%d", &node) != 1) {
		node = -1;
	}
	(void)fclose(file);
	return node >= 0 ? node : -1;
}

void ib_pci_place_read(const char *root, const char *device, struct pci_place *out)
{
	real_path(root, device, "device", out->path);
	if (!is_pci_path(out->path)) {
		out->path[0] = '\0';
	}
	real_path(root, device, "device/physfn", out->physfn);
	out->numa_node = read_numa(root, device);
}

void ib_pci_path_fold(char *path, bool merge_vfs)
{
	size_t len = strlen(path);

	if (!is_pci_path(path)) {
		return;
	}
	path[len - 1] = '0';
	if (merge_vfs) {
		path[len - 3] = '0';
		path[len - 4] = '0';
	}
}

/* Number of whole path components that both start with. */
static unsigned int common_components(const char *a, const char *b)
{
	unsigned int count = 0;

	while (*a != '\0' && *b != '\0') {
		size_t a_len, b_len;

		a += *a == '/';
		b += *b == '/';
		a_len = strcspn(a, "/");
		b_len = strcspn(b, "/");
		if (a_len == 0 || a_len != b_len || memcmp(a, b, a_len) != 0) {
			break;
		}
		count++;
		a += a_len;
		b += b_len;
	}
	return count;
}

/* Components up to and including the host bridge, "pci0000:00"; 0 when there is none. */
static unsigned int root_components(const char *path)
{
	unsigned int count = 0;

	while (*path != '\0') {
		path += *path == '/';
		count++;
		if (strncmp(path, "pci", 3) == 0 && path[3] >= '0' && path[3] <= 'f') {
			return count;
		}
		path += strcspn(path, "/");
	}
	return 0;
}

bool ib_pci_path_same_bridge(const char *a, const char *b)
{
	unsigned int root = root_components(a);

	return root > 0 && common_components(a, b) > root;
}

bool ib_pci_path_same_root(const char *a, const char *b)
{
	unsigned int root = root_components(a);

	return root > 0 && common_components(a, b) >= root;
}
