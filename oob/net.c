/* SPDX-License-Identifier: Apache-2.0 */
#include "include/log.h"
#include "oob/net_priv.h"
#include "oob/proc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	CONNECT_TIMEOUT_DEFAULT_MS = 30000,
	PEER_TIMEOUT_DEFAULT_MS = 300000,
	CLOSE_WAIT_S = 5 /* for the loop thread, which itself takes CLOSE_FLUSH_S at most */
};

#define CLOSE_FLUSH_S 0.5

bool oob_net_foreign(const struct oob_net *net)
{
	return net->pid != getpid();
}

/** Pick addresses and open the listener on them; fills in net->self. */
static int net_listen(struct oob_net *net, const struct oob_net_opts *opts)
{
	struct oob_if ifs[OOB_IFSEL_MAX];
	union oob_sock_addr addrs[OOB_IFSEL_PICKS];
	size_t count = 0, picks[OOB_IFSEL_PICKS], pick_count;
	char text[512];
	int err = oob_ifsel_list(ifs, &count);

	if (err != 0) {
		LOG_WARN("cannot list the network interfaces: error %d", -err);
		return err;
	}
	pick_count = oob_ifsel_choose(ifs, count, opts->ifname, opts->family, picks);
	if (pick_count == 0) {
		LOG_WARN("no network interface for control links: NCCL_SOCKET_IFNAME is \"%s\", "
			 "NCCL_SOCKET_FAMILY is %s; there are: %s",
			 opts->ifname != NULL ? opts->ifname : "",
			 opts->family == 0 ? "unset" : (opts->family == AF_INET ? "IPv4" : "IPv6"),
			 oob_ifsel_text(ifs, count, text, sizeof(text)));
		return -ENODEV;
	}
	for (size_t i = 0; i < pick_count; i++) {
		const struct oob_if *entry = &ifs[picks[i]];

		oob_sock_addr_make(entry->family, entry->bytes, 0, entry->index, &addrs[i]);
		net->self.addrs[i].family = entry->family;
		memcpy(net->self.addrs[i].bytes, entry->bytes, sizeof(entry->bytes));
		net->scope_id = net->scope_id == 0 ? entry->index : net->scope_id;
	}
	net->self.addr_count = (uint8_t)pick_count;
	err = oob_listener_open(&net->listener, addrs, pick_count, &net->self.port);
	if (err != 0) {
		LOG_WARN("cannot listen for control links on %s: error %d",
			 oob_ifsel_text(&ifs[picks[0]], 1, text, sizeof(text)), -err);
		return err;
	}
	LOG_INFO("control links: listening on port %u of %s%s", net->self.port,
		 oob_ifsel_text(&ifs[picks[0]], 1, text, sizeof(text)),
		 pick_count > 1 ? " and others" : "");
	return 0;
}

static void close_run(void *arg);

static void closed_run(void *arg)
{
	struct oob_net *net = arg;

	pthread_mutex_lock(&net->lock);
	net->closed = true;
	pthread_cond_signal(&net->closed_cond);
	pthread_mutex_unlock(&net->lock);
}

static void listener_run(void *arg)
{
	struct oob_net *net = arg;

	oob_listener_start(&net->listener);
}

static void accepted_cb(void *arg, int fd, const union oob_sock_addr *peer)
{
	oob_hello_accept(arg, fd, peer);
}

static void net_init(struct oob_net *net, struct oob_loop *loop, const struct oob_net_opts *opts)
{
	pthread_condattr_t attr;

	net->loop = loop;
	net->pid = getpid();
	net->refs = 1;
	net->connect_timeout_ms = opts->connect_timeout_ms != 0 ? opts->connect_timeout_ms
								: CONNECT_TIMEOUT_DEFAULT_MS;
	net->peer_timeout_ms =
		opts->peer_timeout_ms != 0 ? opts->peer_timeout_ms : PEER_TIMEOUT_DEFAULT_MS;
	if (gethostname(net->host, sizeof(net->host) - 1) != 0) {
		strcpy(net->host, "?");
	}
	pthread_mutex_init(&net->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&net->closed_cond, &attr);
	pthread_condattr_destroy(&attr);
	net->close_task = (struct oob_task){.fn = close_run, .arg = net};
	net->closed_task = (struct oob_task){.fn = closed_run, .arg = net};
	net->listener.loop = loop;
	net->listener.accepted = accepted_cb;
	net->listener.arg = net;
}

int oob_net_open(struct oob_loop *loop, const struct oob_net_opts *opts,
		 const struct oob_handlers *handlers, void *arg, struct oob_net **out)
{
	struct oob_net *net = calloc(1, sizeof(*net));
	int err;

	if (net == NULL) {
		return -ENOMEM;
	}
	oob_sock_limit_raise();
	net_init(net, loop, opts);
	net->handlers = *handlers;
	net->arg = arg;
	err = oob_proc_self(&net->self.proc);
	if (err != 0) {
		LOG_WARN("no random numbers for the process id: error %d", -err);
		goto unref_net;
	}
	err = net_listen(net, opts);
	if (err != 0) {
		goto unref_net;
	}
	err = oob_loop_post(loop, listener_run, net);
	if (err != 0) {
		goto close_listener;
	}
	*out = net;
	return 0;

close_listener:
	oob_listener_close(&net->listener);
unref_net:
	oob_net_unref(net);
	return err;
}

void oob_net_unref(struct oob_net *net)
{
	bool last;

	pthread_mutex_lock(&net->lock);
	last = --net->refs == 0;
	pthread_mutex_unlock(&net->lock);
	if (last) {
		pthread_cond_destroy(&net->closed_cond);
		pthread_mutex_destroy(&net->lock);
		free(net);
	}
}

void oob_net_check_closed(struct oob_net *net)
{
	bool through;

	pthread_mutex_lock(&net->lock);
	through = net->closing && net->link_count == 0 && !net->dead;
	if (through) {
		net->dead = true;
		/* behind every task that names a link of this net */
		oob_loop_post_task(net->loop, &net->closed_task);
	}
	pthread_mutex_unlock(&net->lock);
	if (through) {
		ev_timer_stop(oob_loop_ev(net->loop), &net->close_timer);
	}
}

/** Some link of the list. Only this thread takes links out. */
static struct oob_link *first_link(struct oob_net *net, unsigned int bucket)
{
	struct oob_link *link;

	pthread_mutex_lock(&net->lock);
	link = net->links[bucket];
	pthread_mutex_unlock(&net->lock);
	return link;
}

static void close_timer_cb(struct ev_loop *ev, ev_timer *watcher, int events)
{
	struct oob_net *net = watcher->data;
	struct oob_link *link;

	(void)ev;
	(void)events;
	for (unsigned int i = 0; i < OOB_LINK_BUCKETS; i++) {
		while ((link = first_link(net, i)) != NULL) {
			LOG_INFO("link to %s: closed without waiting any longer for its answer",
				 oob_link_name(link));
			oob_link_finish(link);
		}
	}
}

static void close_run(void *arg)
{
	struct oob_net *net = arg;
	struct oob_link *link, *next;

	/* from here on no handler is called */
	memset(&net->handlers, 0, sizeof(net->handlers));
	oob_listener_close(&net->listener);
	oob_hello_drop_all(net);
	ev_timer_init(&net->close_timer, close_timer_cb, CLOSE_FLUSH_S, 0.0);
	net->close_timer.data = net;
	ev_now_update(oob_loop_ev(net->loop));
	ev_timer_start(oob_loop_ev(net->loop), &net->close_timer);
	/* nobody puts new ones in while closing */
	for (unsigned int i = 0; i < OOB_LINK_BUCKETS; i++) {
		for (link = first_link(net, i); link != NULL; link = next) {
			next = link->next;
			oob_link_close_begin(link);
		}
	}
	oob_net_check_closed(net);
}

void oob_net_close(struct oob_net *net)
{
	struct timespec until;
	int rc = 0;

	if (net == NULL || oob_net_foreign(net)) {
		return;
	}
	pthread_mutex_lock(&net->lock);
	net->closing = true;
	pthread_mutex_unlock(&net->lock);
	oob_loop_post_task(net->loop, &net->close_task);
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += CLOSE_WAIT_S;
	pthread_mutex_lock(&net->lock);
	while (!net->closed && rc == 0) {
		rc = pthread_cond_timedwait(&net->closed_cond, &net->lock, &until);
	}
	rc = net->closed ? 0 : rc;
	pthread_mutex_unlock(&net->lock);
	if (rc != 0) {
		/* the loop thread is stuck in a handler and may still come back to it */
		LOG_WARN("control links could not be closed within %d s; left behind",
			 CLOSE_WAIT_S);
		return;
	}
	oob_net_unref(net);
}

void oob_net_addr(const struct oob_net *net, struct oob_addr *out)
{
	*out = net->self;
}

uint64_t oob_net_strangers(const struct oob_net *net)
{
	return atomic_load_explicit(&net->stranger_count, memory_order_relaxed);
}
