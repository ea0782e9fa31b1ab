/* SPDX-License-Identifier: Apache-2.0 */
#include "oob/sock.h"

#include "include/log.h"
#include "oob/proc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
	/* a path that swallows packets is noticed after about 15 s; a stopped peer's kernel answers
	 */
	KEEP_IDLE_S = 5,
	KEEP_INTERVAL_S = 2,
	KEEP_COUNT = 5,
	UNACKED_MAX_MS = 15000
};

int oob_sock_addr_make(int family, const uint8_t *bytes, uint16_t port, uint32_t scope_id,
		       union oob_sock_addr *out)
{
	memset(out, 0, sizeof(*out));
	if (family == AF_INET) {
		out->v4.sin_family = AF_INET;
		out->v4.sin_port = htons(port);
		memcpy(&out->v4.sin_addr, bytes, sizeof(out->v4.sin_addr));
		return 0;
	}
	if (family == AF_INET6) {
		out->v6.sin6_family = AF_INET6;
		out->v6.sin6_port = htons(port);
		memcpy(&out->v6.sin6_addr, bytes, sizeof(out->v6.sin6_addr));
		out->v6.sin6_scope_id = IN6_IS_ADDR_LINKLOCAL(&out->v6.sin6_addr) ? scope_id : 0;
		return 0;
	}
	return -EAFNOSUPPORT;
}

void oob_sock_addr_split(const union oob_sock_addr *addr, uint8_t *family, uint8_t *bytes,
			 uint16_t *port)
{
	memset(bytes, 0, 16);
	*family = (uint8_t)addr->any.sa_family;
	if (addr->any.sa_family == AF_INET) {
		memcpy(bytes, &addr->v4.sin_addr, 4);
		*port = ntohs(addr->v4.sin_port);
		return;
	}
	*port = ntohs(addr->v6.sin6_port);
	if (IN6_IS_ADDR_V4MAPPED(&addr->v6.sin6_addr)) {
		*family = AF_INET;
		memcpy(bytes, addr->v6.sin6_addr.s6_addr + 12, 4);
		return;
	}
	memcpy(bytes, &addr->v6.sin6_addr, 16);
}

const char *oob_sock_addr_text(const union oob_sock_addr *addr, char *buf)
{
	char text[INET6_ADDRSTRLEN] = "?";

	if (addr->any.sa_family == AF_INET) {
		inet_ntop(AF_INET, &addr->v4.sin_addr, text, sizeof(text));
		snprintf(buf, OOB_SOCK_TEXT_BYTES, "%s:%u", text, ntohs(addr->v4.sin_port));
	} else {
		inet_ntop(AF_INET6, &addr->v6.sin6_addr, text, sizeof(text));
		snprintf(buf, OOB_SOCK_TEXT_BYTES, "[%s]:%u", text, ntohs(addr->v6.sin6_port));
	}
	return buf;
}

static socklen_t addr_len(const union oob_sock_addr *addr)
{
	return addr->any.sa_family == AF_INET ? sizeof(addr->v4) : sizeof(addr->v6);
}

static void opt_set(int fd, int level, int name, int value)
{
	/* tuning only: a kernel that refuses one of these still carries the link */
	(void)setsockopt(fd, level, name, &value, sizeof(value));
}

static void sock_tune(int fd)
{
	opt_set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	opt_set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	opt_set(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEP_IDLE_S);
	opt_set(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEP_INTERVAL_S);
	opt_set(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEP_COUNT);
	opt_set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, UNACKED_MAX_MS);
}

static int sock_open(int family)
{
	int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
	int err;

	if (fd < 0) {
		return -errno;
	}
	err = oob_proc_fd_add(fd);
	if (err != 0) {
		close(fd);
		return err;
	}
	return fd;
}

int oob_sock_listen(const union oob_sock_addr *addr)
{
	int fd = sock_open(addr->any.sa_family);
	int err;

	if (fd < 0) {
		return fd;
	}
	if (addr->any.sa_family == AF_INET6) {
		opt_set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
	}
	/* the kernel cuts the backlog to net.core.somaxconn */
	if (bind(fd, &addr->any, addr_len(addr)) != 0 || listen(fd, 65535) != 0) {
		err = -errno;
		oob_sock_close(fd);
		return err;
	}
	return fd;
}

int oob_sock_accept(int listen_fd, union oob_sock_addr *peer)
{
	union oob_sock_addr from = {.v6 = {0}};
	socklen_t len = sizeof(from);
	int fd = accept4(listen_fd, &from.any, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
	int err;

	if (fd < 0) {
		return -errno;
	}
	err = oob_proc_fd_add(fd);
	if (err != 0) {
		close(fd);
		return err;
	}
	sock_tune(fd);
	*peer = from;
	return fd;
}

int oob_sock_connect(const union oob_sock_addr *addr)
{
	int fd = sock_open(addr->any.sa_family);
	int err;

	if (fd < 0) {
		return fd;
	}
	sock_tune(fd);
	if (connect(fd, &addr->any, addr_len(addr)) != 0 && errno != EINPROGRESS) {
		err = -errno;
		oob_sock_close(fd);
		return err;
	}
	return fd;
}

int oob_sock_connected(int fd)
{
	union oob_sock_addr self = {.v6 = {0}}, peer = {.v6 = {0}};
	socklen_t self_len = sizeof(self), peer_len = sizeof(peer);
	int err = 0;
	socklen_t err_len = sizeof(err);

	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &err_len) != 0) {
		return -errno;
	}
	if (err != 0) {
		return -err;
	}
	if (getsockname(fd, &self.any, &self_len) != 0 ||
	    getpeername(fd, &peer.any, &peer_len) != 0) {
		return -errno;
	}
	if (self_len == peer_len && memcmp(&self, &peer, self_len) == 0) {
		return -ECONNREFUSED;
	}
	return 0;
}

int oob_sock_peer(int fd, union oob_sock_addr *out)
{
	socklen_t len = sizeof(*out);

	memset(out, 0, sizeof(*out));
	return getpeername(fd, &out->any, &len) != 0 ? -errno : 0;
}

uint16_t oob_sock_port(int fd)
{
	union oob_sock_addr self = {.v6 = {0}};
	socklen_t len = sizeof(self);

	if (getsockname(fd, &self.any, &len) != 0) {
		return 0;
	}
	return ntohs(self.any.sa_family == AF_INET ? self.v4.sin_port : self.v6.sin6_port);
}

void oob_sock_close(int fd)
{
	oob_proc_fd_close(fd);
}

static void limit_raise(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) {
		return;
	}
	LOG_INFO("open files: soft limit %llu raised to the hard limit %llu",
		 (unsigned long long)limit.rlim_cur, (unsigned long long)limit.rlim_max);
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
		LOG_WARN("open files: raising the soft limit failed (%m)");
	}
}

void oob_sock_limit_raise(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, limit_raise);
}
