/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/loopback.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int comm_create(bool sends, struct loopback_comm **out)
{
	struct loopback_comm *comm = calloc(1, sizeof(*comm));

	if (!comm) {
		return -ENOMEM;
	}
	comm->sends = sends;
	comm->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (comm->fd < 0) {
		int err = -errno;

		free(comm);
		return err;
	}
	*out = comm;
	return 0;
}

static struct sockaddr_in address(uint16_t port)
{
	return (struct sockaddr_in){
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr = {htonl(INADDR_LOOPBACK)},
	};
}

int loopback_listen(struct loopback_handle *handle, struct loopback_comm **out)
{
	struct sockaddr_in addr = address(0);
	socklen_t len = sizeof(addr);
	struct loopback_comm *comm = NULL;
	int err = comm_create(false, &comm);

	if (!comm) {
		return err;
	}
	if (bind(comm->fd, (struct sockaddr *)&addr, len) < 0 || listen(comm->fd, 1) < 0 ||
	    getsockname(comm->fd, (struct sockaddr *)&addr, &len) < 0) {
		err = -errno;
		loopback_close(comm);
		return err;
	}
	*handle = (struct loopback_handle){.port = ntohs(addr.sin_port)};
	*out = comm;
	return 0;
}

static void no_delay(int fd)
{
	int one = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

int loopback_connect(struct loopback_handle *handle, struct loopback_comm **out)
{
	struct sockaddr_in addr = address(handle->port);
	int err = 0;

	if (!handle->pending) {
		err = comm_create(true, &handle->pending);
		if (!handle->pending) {
			return err;
		}
		if (connect(handle->pending->fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 &&
		    errno != EINPROGRESS) {
			return -errno;
		}
		return 0; /* not at once, so that callers must come back */
	}
	struct pollfd poll_fd = {handle->pending->fd, POLLOUT, 0};
	socklen_t len = sizeof(err);

	if (poll(&poll_fd, 1, 0) == 1) {
		getsockopt(poll_fd.fd, SOL_SOCKET, SO_ERROR, &err, &len);
		if (err) {
			return -err;
		}
		no_delay(poll_fd.fd);
		*out = handle->pending;
		handle->pending = NULL;
	}
	return 0;
}

int loopback_accept(struct loopback_comm *listener, struct loopback_comm **out)
{
	int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd < 0) {
		return errno == EAGAIN ? 0 : -errno;
	}
	struct loopback_comm *comm = calloc(1, sizeof(*comm));

	if (!comm) {
		close(fd);
		return -ENOMEM;
	}
	no_delay(fd);
	comm->fd = fd;
	*out = comm;
	return 0;
}

void loopback_close(struct loopback_comm *comm)
{
	if (comm) {
		close(comm->fd);
		free(comm);
	}
}

int loopback_post(struct loopback_comm *comm, void *data, size_t len_bytes, void **out)
{
	struct loopback_request *request = &comm->requests[comm->post_seq % LOOPBACK_REQUESTS];

	if (comm->broken) {
		return comm->broken;
	}
	if (request->busy) {
		*out = NULL;
		return 0;
	}
	*request = (struct loopback_request){
		.comm = comm,
		.busy = true,
		.seq = comm->post_seq,
		.data = data,
		.len_bytes = len_bytes,
		.header = len_bytes,
	};
	if (!comm->request_left &&
	    loopback_fault_is(request, comm->sends ? LOOPBACK_REQUEST : LOOPBACK_REQUEST_RECV)) {
		comm->request_left = true;
		request->busy = false;
		return 0;
	}
	memcpy(request->old, data,
	       len_bytes < sizeof(request->old) ? len_bytes : sizeof(request->old));
	if (!comm->sends && loopback_fault_armed(request)) {
		/* Keep the payload out of sight until the fault strikes: ll reads buffers early. */
		request->bounce = malloc(len_bytes + 1);
	}
	comm->post_seq++;
	*out = request;
	return 0;
}

/** Push or pull `len` bytes; how many went, or -errno. */
static ssize_t socket_move(const struct loopback_comm *comm, void *at, size_t len)
{
	ssize_t moved =
		comm->sends ? send(comm->fd, at, len, MSG_NOSIGNAL) : recv(comm->fd, at, len, 0);

	if (moved < 0) {
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	}
	return moved == 0 && !comm->sends ? -ECONNRESET : moved;
}

/** Move the header, then the payload. Returns 1 once all is through, 0 or -errno. */
static int request_move(struct loopback_request *request)
{
	struct loopback_comm *comm = request->comm;

	for (;;) {
		size_t at = request->wire_bytes;
		bool in_header = at < sizeof(request->header);
		unsigned char *payload = request->bounce ? request->bounce : request->data;
		unsigned char *from = in_header ? (unsigned char *)&request->header + at
						: payload + (at - sizeof(request->header));
		size_t left = in_header ? sizeof(request->header) - at
					: sizeof(request->header) + request->header - at;

		if (!in_header && request->header > request->len_bytes) {
			return -EMSGSIZE;
		}
		if (!left) {
			request->len_bytes = request->header;
			return 1;
		}
		ssize_t moved = socket_move(comm, from, left);

		if (moved <= 0) {
			return (int)moved;
		}
		request->wire_bytes += (size_t)moved;
	}
}

static int comm_move(struct loopback_comm *comm)
{
	while (comm->move_seq < comm->post_seq) {
		struct loopback_request *request =
			&comm->requests[comm->move_seq % LOOPBACK_REQUESTS];

		if (comm->sends && request->busy && loopback_fault_is(request, LOOPBACK_EAGER)) {
			request->complete = true; /* a lie: it goes out after it was reported */
			return 0;
		}
		int moved = request_move(request);

		if (moved <= 0) {
			return moved;
		}
		if (request->bounce) {
			loopback_fault_strike(request);
			free(request->bounce);
			request->bounce = NULL;
		}
		request->complete = true;
		comm->move_seq++;
	}
	return 0;
}

int loopback_test(struct loopback_request *request, int *done, int *size)
{
	struct loopback_comm *comm = request->comm;
	int err = comm->broken ? comm->broken : comm_move(comm);

	loopback_fault_late(comm);
	*done = 0;
	if (err) {
		return loopback_fault_broken(comm, err);
	}
	if (!request->complete) {
		return 0;
	}
	*done = 1;
	*size = (int)request->len_bytes;
	err = loopback_fault_report(request, done, size);
	request->visits++;
	if (*done) {
		request->busy = false;
	}
	return err;
}
