/* SPDX-License-Identifier: Apache-2.0 */
#include "include/log.h"
#include "oob/net_priv.h"
#include "oob/proc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Links as their users see them: get, hold, put, send; and how a link ends.
 */

#define LINGER_S 5.0

/** Free a link whose last reference is gone. */
static void link_free(struct oob_link *link)
{
	struct oob_net *net = link->net;

	oob_queue_clear(&link->queue);
	free(link);
	oob_net_unref(net);
}

static void free_run(void *arg)
{
	link_free(arg);
}

static void pump_run(void *arg)
{
	struct oob_link *link = arg;

	if (link->conn != NULL) {
		oob_link_pump(link);
	}
}

static void start_run(void *arg)
{
	struct oob_link *link = arg;

	/* a net that closes may have finished it before this task came up */
	if (link->alive) {
		oob_dial_begin(link, 0, link->net->connect_timeout_ms);
	}
}

static void close_run(void *arg)
{
	struct oob_link *link = arg;

	if (link->alive) {
		oob_link_close_begin(link);
	}
}

static void linger_cb(struct ev_loop *ev, ev_timer *watcher, int events)
{
	struct oob_link *link = watcher->data;

	(void)ev;
	(void)events;
	LOG_INFO("link to %s: closed without waiting any longer for its answer",
		 oob_link_name(link));
	oob_link_finish(link);
}

static void early_name(struct oob_link *link)
{
	const struct oob_addr *addr = &link->addr;
	const uint8_t *id = link->peer.bytes;
	char text[OOB_SOCK_TEXT_BYTES] = "an unknown address";
	union oob_sock_addr first;

	if (addr->addr_count > 0 && oob_sock_addr_make(addr->addrs[0].family, addr->addrs[0].bytes,
						       addr->port, 0, &first) == 0) {
		oob_sock_addr_text(&first, text);
	}
	snprintf(link->early_name, sizeof(link->early_name), "process %02x%02x%02x%02x at %s",
		 id[0], id[1], id[2], id[3], text);
}

struct oob_link *oob_link_create(struct oob_net *net, enum link_role role,
				 const struct oob_addr *peer, uint64_t id)
{
	struct oob_link *link = calloc(1, sizeof(*link));

	if (link == NULL) {
		return NULL;
	}
	link->net = net;
	link->role = role;
	link->peer = peer->proc;
	link->id = id;
	link->addr = *peer;
	link->good_addr = -1;
	if (link->addr.addr_count > HELLO_ADDRS_MAX) {
		link->addr.addr_count = HELLO_ADDRS_MAX;
	}
	link->pump_task = (struct oob_task){.fn = pump_run, .arg = link};
	link->start_task = (struct oob_task){.fn = start_run, .arg = link};
	link->close_task = (struct oob_task){.fn = close_run, .arg = link};
	link->free_task = (struct oob_task){.fn = free_run, .arg = link};
	oob_dial_init(link);
	ev_timer_init(&link->linger, linger_cb, LINGER_S, 0.0);
	link->linger.data = link;
	early_name(link);
	atomic_init(&link->name, link->early_name);
	return link;
}

/** The list of the links to a peer. Process ids are random. */
static struct oob_link **bucket_of(struct oob_net *net, const struct proc_id *peer)
{
	uint32_t bits;

	memcpy(&bits, peer->bytes, sizeof(bits));
	return &net->links[bits % OOB_LINK_BUCKETS];
}

/** Under the lock. */
static int link_enter(struct oob_link *link)
{
	struct oob_net *net = link->net;
	struct oob_link **bucket = bucket_of(net, &link->peer);

	if (net->closing) {
		return -ESHUTDOWN;
	}
	link->alive = true;
	link->refs = 1;
	link->next = *bucket;
	*bucket = link;
	net->link_count++;
	net->refs++;
	return 0;
}

int oob_link_enter(struct oob_link *link)
{
	int err;

	pthread_mutex_lock(&link->net->lock);
	err = link_enter(link);
	pthread_mutex_unlock(&link->net->lock);
	if (err != 0) {
		free(link);
	}
	return err;
}

struct oob_link *oob_link_find(struct oob_net *net, enum link_role role, const struct proc_id *peer,
			       uint64_t id)
{
	struct oob_link *link;

	pthread_mutex_lock(&net->lock);
	for (link = *bucket_of(net, peer); link != NULL; link = link->next) {
		if (link->role == role && link->id == id && oob_proc_equal(&link->peer, peer)) {
			break;
		}
	}
	pthread_mutex_unlock(&net->lock);
	return link;
}

/** Under the lock: a link to this peer that can take one more user. */
static struct oob_link *link_usable(struct oob_net *net, const struct proc_id *peer)
{
	for (struct oob_link *link = *bucket_of(net, peer); link != NULL; link = link->next) {
		if (link->role == LINK_CONNECTING && !link->gone &&
		    oob_proc_equal(&link->peer, peer)) {
			return link;
		}
	}
	return NULL;
}

int oob_link_get(struct oob_net *net, const struct oob_addr *peer, struct oob_link **out)
{
	struct oob_link *link, *made = NULL;
	uint64_t id;
	int err;

	if (oob_net_foreign(net)) {
		return -ESHUTDOWN;
	}
	err = oob_proc_random(&id);
	if (err != 0) {
		return err;
	}
	made = oob_link_create(net, LINK_CONNECTING, peer, id);
	if (made == NULL) {
		return -ENOMEM;
	}
	pthread_mutex_lock(&net->lock);
	link = link_usable(net, &peer->proc);
	if (link == NULL) {
		err = link_enter(made);
	}
	if (link == NULL && err == 0) {
		link = made;
		made = NULL;
		oob_loop_post_task(net->loop, &link->start_task);
	}
	if (err == 0) {
		link->refs++;
		*out = link;
	}
	pthread_mutex_unlock(&net->lock);
	free(made);
	return err;
}

void oob_link_hold(struct oob_link *link)
{
	if (oob_net_foreign(link->net)) {
		return;
	}
	pthread_mutex_lock(&link->net->lock);
	link->refs++;
	pthread_mutex_unlock(&link->net->lock);
}

void oob_link_put(struct oob_link *link)
{
	struct oob_net *net;
	bool free_now = false;

	if (link == NULL || oob_net_foreign(link->net)) {
		return;
	}
	net = link->net;
	pthread_mutex_lock(&net->lock);
	ASSERT(link->refs > (link->alive ? 1 : 0));
	link->refs--;
	if (link->refs == 0 && net->closed) {
		free_now = true;
	} else if (link->refs == 0) {
		oob_loop_post_task(net->loop, &link->free_task);
	} else if (link->refs == 1 && link->alive && link->role == LINK_CONNECTING && !link->gone) {
		/* the next oob_link_get opens another one */
		link->gone = true;
		oob_loop_post_task(net->loop, &link->close_task);
	}
	pthread_mutex_unlock(&net->lock);
	if (free_now) {
		link_free(link);
	}
}

int oob_link_send(struct oob_link *link, const struct frame *frame)
{
	struct oob_net *net = link->net;
	struct oob_queue_item *item = NULL;
	int err;

	if (oob_net_foreign(net)) {
		return -EPIPE;
	}
	err = oob_queue_item_create(frame, &item);
	if (err != 0) {
		return err;
	}
	pthread_mutex_lock(&net->lock);
	if (link->gone) {
		err = -EPIPE;
	} else if (frame->type != FRAME_CLOSE &&
		   !oob_queue_has_room(&link->queue, item->len_bytes)) {
		err = -ENOBUFS;
	} else {
		oob_queue_push(&link->queue, item);
		item = NULL;
		oob_loop_post_task(net->loop, &link->pump_task);
	}
	pthread_mutex_unlock(&net->lock);
	free(item);
	return err;
}

void oob_link_close_begin(struct oob_link *link)
{
	struct oob_net *net = link->net;
	const struct frame goodbye = {.type = FRAME_GOODBYE};
	struct oob_queue_item *item = NULL;
	bool nothing_to_say;

	pthread_mutex_lock(&net->lock);
	if (link->closing) {
		pthread_mutex_unlock(&net->lock);
		return;
	}
	link->gone = true;
	link->closing = true;
	nothing_to_say = !link->was_up && link->queue.head == NULL;
	if (!nothing_to_say && oob_queue_item_create(&goodbye, &item) == 0) {
		oob_queue_push(&link->queue, item);
	}
	pthread_mutex_unlock(&net->lock);
	if (item == NULL) {
		/* never connected and nothing to send, or out of memory */
		oob_link_finish(link);
		return;
	}
	ev_now_update(oob_loop_ev(net->loop));
	ev_timer_start(oob_loop_ev(net->loop), &link->linger);
	if (link->conn != NULL) {
		oob_link_pump(link);
	}
}

void oob_link_finish(struct oob_link *link)
{
	struct oob_net *net = link->net;
	struct oob_link **at;

	ev_timer_stop(oob_loop_ev(net->loop), &link->linger);
	oob_dial_stop(link);
	oob_conn_close(link->conn);
	link->conn = NULL;
	pthread_mutex_lock(&net->lock);
	link->gone = true;
	link->alive = false;
	oob_queue_clear(&link->queue);
	for (at = bucket_of(net, &link->peer); *at != link; at = &(*at)->next) {
	}
	*at = link->next;
	net->link_count--;
	if (--link->refs == 0) {
		oob_loop_post_task(net->loop, &link->free_task);
	}
	pthread_mutex_unlock(&net->lock);
	oob_net_check_closed(net);
}

void oob_link_fail(struct oob_link *link, int err, const char *why)
{
	struct oob_net *net = link->net;
	bool used;

	pthread_mutex_lock(&net->lock);
	used = link->refs > 1;
	link->gone = true;
	link->refs++; /* over the callback */
	pthread_mutex_unlock(&net->lock);
	if (used && net->handlers.peer_gone != NULL) {
		if (err == -ESHUTDOWN) {
			LOG_INFO("link to %s: %s", oob_link_name(link), why);
		} else {
			LOG_WARN("link to %s: peer is gone: %s (error %d)", oob_link_name(link),
				 why, -err);
		}
		net->handlers.peer_gone(net->arg, link, err, why);
	}
	oob_link_finish(link);
	oob_link_put(link);
}

void oob_link_name_set(struct oob_link *link, const struct frame_hello *hello, const char *at)
{
	snprintf(link->full_name, sizeof(link->full_name), "%s:%u at %s", hello->host, hello->pid,
		 at);
	/* pairs with the acquire in oob_link_name */
	atomic_store_explicit(&link->name, link->full_name, memory_order_release);
}

const char *oob_link_name(const struct oob_link *link)
{
	return atomic_load_explicit(&link->name, memory_order_acquire);
}

struct proc_id oob_link_peer(const struct oob_link *link)
{
	return link->peer;
}
