/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_OOB_SOCK_H
#define BRAID_OOB_SOCK_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/** TCP sockets as oob/ uses them: non-blocking, close-on-exec, and closed in a fork's child. */

enum {
	OOB_SOCK_TEXT_BYTES = 64 /* "[v6 address%scope]:port" */
};

union oob_sock_addr {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

/**
 * Fill in an address; family is AF_INET or AF_INET6, bytes in network order (4 or 16 are used),
 * port in host order, scope_id for link-local IPv6. 0 or -EAFNOSUPPORT.
 */
int oob_sock_addr_make(int family, const uint8_t *bytes, uint16_t port, uint32_t scope_id,
		       union oob_sock_addr *out);

/** Its family, address bytes (16, unused ones 0) and port. IPv4 in IPv6 is given as IPv4. */
void oob_sock_addr_split(const union oob_sock_addr *addr, uint8_t *family, uint8_t *bytes,
			 uint16_t *port);

/** Text for log lines; buf of OOB_SOCK_TEXT_BYTES. Returns buf. */
const char *oob_sock_addr_text(const union oob_sock_addr *addr, char *buf);

/** Listening socket bound to addr (port 0: any; IPv6 only for IPv6). Descriptor or -errno. */
int oob_sock_listen(const union oob_sock_addr *addr);

/** Take one connection. Descriptor, or -errno (-EAGAIN: none). *peer is set on success. */
int oob_sock_accept(int listen_fd, union oob_sock_addr *peer);

/** Begin to connect: writable when decided. Descriptor or -errno. */
int oob_sock_connect(const union oob_sock_addr *addr);

/**
 * How a connect that became writable ended: 0 or -errno. A socket that met itself (a free ephemeral
 * port may be chosen as source) counts as -ECONNREFUSED.
 */
int oob_sock_connected(int fd);

/** Address of the other end. 0 or -errno. */
int oob_sock_peer(int fd, union oob_sock_addr *out);

/** Port a socket is bound to, host order; 0 when unknown. */
uint16_t oob_sock_port(int fd);

void oob_sock_close(int fd);

/** Raise the soft limit of open files to the hard one, once per process. */
void oob_sock_limit_raise(void);

#endif
