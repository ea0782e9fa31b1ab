/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_OOB_PROXY_H
#define BRAID_TEST_OOB_PROXY_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/**
 * A TCP proxy on the loopback interface that loses connections: at a byte count it stops in the
 * middle of what it has read and closes one side or both, by FIN or by RST. What was read and not
 * passed on is lost, as on a broken network. Half-closed pairs leave one end believing that the
 * connection is fine.
 */
enum {
	PROXY_PAIRS = 64
};

enum proxy_mode {
	PROXY_PASS,
	PROXY_HANG_UP /* accept, then close at once */
};

struct proxy {
	int listen_fd, wake[2];
	uint16_t port;
	_Atomic unsigned target_port;
	_Atomic unsigned mode;
	_Atomic unsigned cut_budget; /* cuts still to be made */
	_Atomic unsigned cut_count;
	_Atomic unsigned cut_now; /* 1: cut everything now */
	uint32_t cut_least_bytes, cut_spread_bytes;
	pthread_t thread;
	/* thread only */
	struct {
		int fds[2]; /* -1: closed */
		uint64_t left_bytes;
	} pairs[PROXY_PAIRS];
	uint64_t rnd;
};

static inline uint64_t proxy_rnd(struct proxy *proxy)
{
	proxy->rnd ^= proxy->rnd << 13;
	proxy->rnd ^= proxy->rnd >> 7;
	proxy->rnd ^= proxy->rnd << 17;
	return proxy->rnd;
}

static inline struct sockaddr_in proxy_loopback(uint16_t port)
{
	struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(port)};

	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return addr;
}

static inline void proxy_close_side(struct proxy *proxy, int pair, int side)
{
	struct linger hard = {.l_onoff = 1, .l_linger = 0};
	int *fd = &proxy->pairs[pair].fds[side];

	if (*fd < 0) {
		return;
	}
	if (proxy_rnd(proxy) % 2 == 0) {
		setsockopt(*fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
	}
	close(*fd);
	*fd = -1;
}

/** sides: bit 0 the connecting end, bit 1 the accepting end. */
static inline void proxy_cut(struct proxy *proxy, int pair, unsigned sides)
{
	for (int side = 0; side < 2; side++) {
		if ((sides >> side & 1) != 0) {
			proxy_close_side(proxy, pair, side);
		}
	}
}

static inline void proxy_accept(struct proxy *proxy)
{
	struct sockaddr_in to = proxy_loopback((uint16_t)proxy->target_port);
	int in = accept4(proxy->listen_fd, NULL, NULL, SOCK_CLOEXEC), out;

	if (in < 0) {
		return;
	}
	out = proxy->mode == PROXY_PASS ? socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;
	if (out < 0 || connect(out, (struct sockaddr *)&to, sizeof(to)) != 0) {
		close(in);
		if (out >= 0) {
			close(out);
		}
		return;
	}
	for (int i = 0; i < PROXY_PAIRS; i++) {
		if (proxy->pairs[i].fds[0] < 0 && proxy->pairs[i].fds[1] < 0) {
			proxy->pairs[i].fds[0] = in;
			proxy->pairs[i].fds[1] = out;
			proxy->pairs[i].left_bytes =
				proxy->cut_least_bytes +
				proxy_rnd(proxy) % (proxy->cut_spread_bytes + 1);
			return;
		}
	}
	close(in);
	close(out);
}

static inline void proxy_pass(struct proxy *proxy, int pair, int side)
{
	char bytes[4096];
	ssize_t got = recv(proxy->pairs[pair].fds[side], bytes, sizeof(bytes), MSG_DONTWAIT);
	int to = proxy->pairs[pair].fds[1 - side];
	size_t pass;

	if (got <= 0) {
		proxy_close_side(proxy, pair, side);
		proxy_close_side(proxy, pair, 1 - side);
		return;
	}
	pass = (size_t)got;
	if (proxy->cut_budget > 0 && proxy->pairs[pair].left_bytes <= pass) {
		pass = proxy->pairs[pair].left_bytes;
	} else {
		proxy->pairs[pair].left_bytes -= pass;
	}
	/* a side that was closed swallows everything */
	if (to >= 0 && pass > 0 && send(to, bytes, pass, MSG_NOSIGNAL) < 0) {
		proxy_close_side(proxy, pair, 1 - side);
	}
	if (pass < (size_t)got ||
	    (proxy->cut_budget > 0 && proxy->pairs[pair].left_bytes == pass)) {
		proxy->cut_budget--;
		proxy->cut_count++;
		proxy->pairs[pair].left_bytes = UINT64_MAX;
		proxy_cut(proxy, pair, 1 + (unsigned)(proxy_rnd(proxy) % 3));
	}
}

static inline void *proxy_main(void *arg)
{
	struct proxy *proxy = arg;

	for (;;) {
		struct pollfd fds[2 + 2 * PROXY_PAIRS];

		fds[0] = (struct pollfd){.fd = proxy->wake[0], .events = POLLIN};
		fds[1] = (struct pollfd){.fd = proxy->listen_fd, .events = POLLIN};
		for (int i = 0; i < 2 * PROXY_PAIRS; i++) {
			fds[2 + i] = (struct pollfd){.fd = proxy->pairs[i / 2].fds[i % 2],
						     .events = POLLIN};
		}
		if (poll(fds, 2 + 2 * PROXY_PAIRS, -1) < 0) {
			continue;
		}
		if (fds[0].revents != 0) {
			char what = 'q';

			if (read(proxy->wake[0], &what, 1) != 1 || what == 'q') {
				return NULL;
			}
			for (int i = 0; i < PROXY_PAIRS; i++) {
				proxy_cut(proxy, i, 3);
			}
			continue;
		}
		for (int i = 0; i < 2 * PROXY_PAIRS; i++) {
			if (fds[2 + i].revents != 0 &&
			    proxy->pairs[i / 2].fds[i % 2] == fds[2 + i].fd) {
				proxy_pass(proxy, i / 2, i % 2);
			}
		}
		if (fds[1].revents != 0) {
			proxy_accept(proxy);
		}
	}
}

static inline int proxy_start(struct proxy *proxy, uint16_t target_port, uint64_t seed)
{
	struct sockaddr_in addr = proxy_loopback(0);
	socklen_t len = sizeof(addr);

	memset(proxy, 0, sizeof(*proxy));
	proxy->target_port = target_port;
	proxy->rnd = seed;
	for (int i = 0; i < PROXY_PAIRS; i++) {
		proxy->pairs[i].fds[0] = -1;
		proxy->pairs[i].fds[1] = -1;
	}
	proxy->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (proxy->listen_fd < 0 || pipe(proxy->wake) != 0 ||
	    bind(proxy->listen_fd, (struct sockaddr *)&addr, sizeof(addr)) != 0 ||
	    listen(proxy->listen_fd, 64) != 0 ||
	    getsockname(proxy->listen_fd, (struct sockaddr *)&addr, &len) != 0) {
		return -1;
	}
	proxy->port = ntohs(addr.sin_port);
	return pthread_create(&proxy->thread, NULL, proxy_main, proxy);
}

/** Cut all connections now. */
static inline void proxy_cut_all(struct proxy *proxy)
{
	(void)!write(proxy->wake[1], "c", 1);
}

static inline void proxy_stop(struct proxy *proxy)
{
	(void)!write(proxy->wake[1], "q", 1);
	pthread_join(proxy->thread, NULL);
	for (int i = 0; i < PROXY_PAIRS; i++) {
		proxy_cut(proxy, i, 3);
	}
	close(proxy->listen_fd);
	close(proxy->wake[0]);
	close(proxy->wake[1]);
}

#endif
