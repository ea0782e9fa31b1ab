/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/linkcut.h"

#include <dirent.h>
#include <errno.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>

struct linkcut {
	pthread_t thread;
	struct shared *shared;
	uint32_t rank;
	_Atomic int quit;
};

/** A TCP socket that has a peer: no listener, nothing of the fabric. */
static bool is_link(int fd)
{
	struct sockaddr_storage peer;
	socklen_t peer_len = sizeof(peer);
	int protocol = 0;
	socklen_t len = sizeof(protocol);

	return getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &len) == 0 &&
	       protocol == IPPROTO_TCP && getpeername(fd, (struct sockaddr *)&peer, &peer_len) == 0;
}

static int link_harm(int fd, enum link_order order)
{
	static struct sock_filter none[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
	static const struct sock_fprog drop_all = {1, none};
	static const struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
	int zero = 0;

	switch (order) {
	case LINK_FIN:
		return shutdown(fd, SHUT_RDWR);
	case LINK_RST: /* dissolving the association sends a reset, see connect(2) and tcp(7) */
		return connect(fd, &nowhere, sizeof(nowhere));
	case LINK_MUTE: /* arriving packets, acknowledgements among them, are dropped */
		return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &drop_all, sizeof(drop_all));
	case LINK_UNMUTE:
		return setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &zero, sizeof(zero));
	case LINK_NOTHING:
	case LINK_ORDER_COUNT:
		break;
	}
	return 0;
}

/** Do it to all links of this process; returns to how many. */
static uint32_t links_harm(enum link_order order)
{
	DIR *dir = opendir("/proc/self/fd");
	uint32_t count = 0;

	if (!dir) {
		return 0;
	}
	for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
		int fd = atoi(entry->d_name);

		if (entry->d_name[0] != '.' && fd != dirfd(dir) && is_link(fd)) {
			count += link_harm(fd, order) == 0;
		}
	}
	closedir(dir);
	return count;
}

static void *linkcut_main(void *arg)
{
	struct linkcut *linkcut = arg;
	uint32_t seen = 0;

	while (!atomic_load_explicit(&linkcut->quit, memory_order_acquire)) {
		enum link_order order = shared_link_wait(linkcut->shared, linkcut->rank, &seen, 50);

		if (order != LINK_NOTHING) {
			atomic_fetch_add_explicit(
				&linkcut->shared->ranks[linkcut->rank].links_harmed,
				links_harm(order), memory_order_relaxed);
		}
	}
	return NULL;
}

int linkcut_start(struct linkcut **out, struct shared *shared, uint32_t rank)
{
	struct linkcut *linkcut = calloc(1, sizeof(*linkcut));
	int err;

	if (!linkcut) {
		return -ENOMEM;
	}
	linkcut->shared = shared;
	linkcut->rank = rank;
	err = pthread_create(&linkcut->thread, NULL, linkcut_main, linkcut);
	if (err) {
		free(linkcut);
		return -err;
	}
	pthread_setname_np(linkcut->thread, "linkcut");
	*out = linkcut;
	return 0;
}

void linkcut_stop(struct linkcut *linkcut)
{
	if (linkcut) {
		atomic_store_explicit(&linkcut->quit, 1, memory_order_release);
		pthread_join(linkcut->thread, NULL);
		free(linkcut);
	}
}
