/* SPDX-License-Identifier: Apache-2.0 */
#include "test/sim/sim.h"

#include "include/log.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
	EVENTS_MAX = 2000000
};

/* Bound on progress after the last disturbance: every timer of a run is far below it. */
static const uint64_t PROGRESS_NS = 10ull * 1000 * 1000 * 1000;

static sigjmp_buf aborted;
static struct sim *running;

void sim_fail(struct sim *sim, const char *fmt, ...)
{
	va_list args;

	if (sim->failed) {
		return;
	}
	sim->failed = true;
	va_start(args, fmt);
	vsnprintf(sim->failure, sizeof(sim->failure), fmt, args);
	va_end(args);
	TRACE(sim, "FAILED: %s", sim->failure);
}

void sim_push(struct sim *sim, struct ev ev)
{
	if (!evq_push(&sim->evq, ev)) {
		sim_fail(sim, "simulator: event queue overrun");
	}
}

void sim_disturb(struct sim *sim, uint64_t until_ns)
{
	if (until_ns > sim->disturbed_ns) {
		sim->disturbed_ns = until_ns;
	}
}

/* Lines of the code under test: an assertion's text becomes the failure's. */
static void on_log(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
	char text[TRACE_LINE_BYTES];
	va_list args;

	(void)flags;
	if (!running) {
		return;
	}
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	TRACE(running, "log %s:%d: %s", file, line, text);
	if (level == LOG_LEVEL_WARN && strstr(text, "assertion failed")) {
		sim_fail(running, "%s", text);
	}
}

static void on_abort(int sig)
{
	(void)sig;
	siglongjmp(aborted, 1);
}

static void set_up(struct sim *sim, uint64_t seed)
{
	struct sim_conf *conf = &sim->conf;

	sim->rng = (struct rng){rng_mix(seed * 2 + 1)};
	sim->now_ns = 1;
	sim->disturbed_ns = 0;
	sim->link_ns = 0;
	sim->placed_bytes = 0;
	sim->next_fault_bytes = 0;
	memset(sim->hook_counts, 0, sizeof(sim->hook_counts));
	sim->owed_seq = 0;
	sim->failed = false;
	sim->quiet = false;
	sim->failure[0] = '\0';
	sim->trace.count = 0;
	memset(sim->cts, 0, sizeof(sim->cts));
	memset(sim->acks, 0, sizeof(sim->acks));
	memset(sim->records, 0, sizeof(sim->records));
	memset(sim->shares, 0, sizeof(sim->shares));
	evq_init(&sim->evq);
	net_init(sim);
	user_init(sim);
	host_init(sim, SIDE_TX);
	host_init(sim, SIDE_RX);
	repair_tx_init(&sim->tx, &sim_ops, &sim->hosts[SIDE_TX], &conf->limits, sim->cts,
		       sim->acks);
	repair_rx_init(&sim->rx, &sim_ops, &sim->hosts[SIDE_RX], &conf->limits, sim->cts_source,
		       sim->records);
	/* A comm that has been at work for long: numbers near a wrap. */
	sim->tx.next_seq = sim->tx.seen_seq = conf->first_seq;
	sim->tx.acked_seq = sim->tx.released_seq = conf->first_seq;
	sim->rx.released_seq = sim->rx.acked_seq = conf->first_seq;
	sim->rx.book.next_seq = sim->rx.book.posted_seq = conf->first_seq;
	for (unsigned int s = 0; s < SIDE_COUNT; s++) {
		sim->hosts[s].end->probes_in = sim->probes_in[s];
		sim->hosts[s].end->probes_out = sim->probes_out[s];
	}
	for (unsigned int s = 0; s < SIDE_COUNT; s++) {
		struct repair_end *end = sim->hosts[s].end;

		end->path_count = conf->path_count;
		end->active_count = conf->active_count;
		for (unsigned int p = 0; p < conf->path_count; p++) {
			end->paths[p].share = &sim->shares[s][p];
			if (conf->absent_mask >> p & 1) {
				repair_end_absent(end, p, conf->weight[p], sim->now_ns);
			} else {
				repair_end_ready(end, p, conf->weight[p], sim->now_ns);
			}
		}
	}
	if (conf->path_count > 8) {
		SIM_MARK(sim, TWO_LINES);
	}
	if (conf->absent_mask) {
		SIM_MARK(sim, ABSENT);
	}
}

/* What a failed end means for this run's goal. True: the run is over. */
static bool judge_failed(struct sim *sim, const struct host *host)
{
	const struct sim_conf *conf = &sim->conf;

	if (conf->goal == GOAL_UNFENCED && host->failed == CAUSE_UNFENCED &&
	    host->side == conf->odd_side) {
		return true;
	}
	if (conf->goal == GOAL_NO_PATH && host->failed == CAUSE_NO_PATH) {
		SIM_MARK(sim, NO_PATH);
		return false;
	}
	if (conf->goal == GOAL_NO_PATH && conf->heals && host->failed == CAUSE_PEER_CLOSED &&
	    sim->hosts[!host->side].failed == CAUSE_NO_PATH) {
		return false;
	}
	if (conf->goal == GOAL_LEAVE && sim->hosts[!host->side].closed &&
	    host->failed ==
		    (sim->hosts[!host->side].killed ? CAUSE_PEER_GONE : CAUSE_PEER_CLOSED)) {
		SIM_MARK(sim, LEFT_ALONE);
		return false;
	}
	sim_fail(sim, "%s failed: %s%s%s", host->side == SIDE_TX ? "tx" : "rx",
		 cause_name(host->failed), host->failed_detail ? ": " : "",
		 host->failed_detail ? host->failed_detail : "");
	return true;
}

/* P10: what works again is used again, by itself; only then is a run over that could see it. */
static bool is_whole(const struct sim *sim)
{
	const struct host *hosts = sim->hosts;

	if (!sim->conf.heals || sim->conf.goal != GOAL_FINISH || sim->conf.rx_closes) {
		return true;
	}
	for (unsigned int p = 0; p < sim->conf.path_count; p++) {
		if ((hosts[SIDE_TX].end->paths[p].state != PATH_UP ||
		     hosts[SIDE_RX].end->paths[p].state != PATH_UP) &&
		    net_is_sound(sim, p)) {
			return false;
		}
	}
	return true;
}

static bool is_over(struct sim *sim)
{
	unsigned int finished = 0;

	for (unsigned int s = 0; s < SIDE_COUNT; s++) {
		const struct host *host = &sim->hosts[s];

		if (host->failed && judge_failed(sim, host)) {
			return true;
		}
		finished += host->failed || host->user_done || host->told_closed || host->closed;
	}
	return finished == SIDE_COUNT && is_whole(sim);
}

/* Is there something to acknowledge, and a path for it? */
static bool owes_ack(const struct sim *sim)
{
	const struct repair_rx *rx = &sim->rx;
	int p = plan_pick_tiny(rx->end.paths, sim->conf.path_count);

	return p >= 0 && net_has_room(sim, SIDE_RX, (unsigned int)p, 1) &&
	       rx->book.next_seq > rx->acked_seq && !rx->end.failed && !sim->hosts[SIDE_RX].closed;
}

/*
 * What is complete is acknowledged within two rounds: a sender's user may wait for it, and nothing
 * else may ever come. Looked at before a step of the receiver, so that no tick hides it.
 */
static void check_acks(struct sim *sim)
{
	if (sim->owed_seq && sim->hosts[SIDE_RX].stopped_ns <= sim->looked_ns &&
	    sim->now_ns - sim->owed_ns > 2 * ROUND_NS + sim->conf.poll_delay_ns) {
		sim_fail(sim, "complete up to seq %llu, acknowledged up to %llu for too long",
			 (unsigned long long)sim->rx.book.next_seq,
			 (unsigned long long)sim->owed_seq);
	}
}

/* After a step of the receiver; while it is stopped it owes nothing. */
static void note_acks(struct sim *sim)
{
	uint64_t owed_seq = owes_ack(sim) ? sim->rx.acked_seq : 0;

	if (sim->owed_seq != owed_seq || sim->hosts[SIDE_RX].stopped_ns > sim->looked_ns) {
		sim->owed_seq = owed_seq;
		sim->owed_ns = sim->now_ns;
	}
	sim->looked_ns = sim->now_ns;
}

static void check_ends(struct sim *sim, unsigned int side)
{
	const struct repair_end *end = sim->hosts[side].end;

	for (unsigned int p = 0; p < sim->conf.path_count; p++) {
		path_check(&end->paths[p]);
		if (atomic_load(&sim->shares[side][p].load_bytes) != end->paths[p].shared_bytes) {
			sim_fail(sim, "path %u: the load on its rail is not what is out", p);
		}
	}
	if (side == SIDE_TX) {
		for (uint64_t seq = sim->tx.acked_seq; seq < sim->tx.next_seq; seq++) {
			const struct repair_tx_msg *msg = &sim->tx.msgs[wire_slot(seq)];
			uint32_t seen = msg->pending;

			for (unsigned int p = 0; p < sim->conf.path_count; p++) {
				if (msg->sent[p] & seen) {
					sim_fail(sim, "seq %llu: a piece is in two places",
						 (unsigned long long)seq);
				}
				seen |= msg->sent[p];
			}
		}
	}
}

static void dispatch(struct sim *sim, struct ev *ev)
{
	switch ((enum ev_type)ev->type) {
	case EV_ARRIVE:
		net_on_arrive(sim, ev);
		break;
	case EV_PLACE:
		net_on_place(sim, ev);
		break;
	case EV_ACK:
		net_on_ack(sim, ev);
		break;
	case EV_TIMER:
		net_on_timer(sim, ev);
		break;
	case EV_HEAL:
		fault_heal(sim, ev);
		break;
	case EV_REVIVE:
		fault_revive(sim, ev);
		break;
	case EV_FAULT:
		fault_strike(sim, ev);
		break;
	case EV_POLL:
	case EV_TICK:
	case EV_FRAME:
	case EV_FENCE_ERR:
	case EV_FENCE_DONE:
	case EV_CUT_DONE:
	case EV_BUILT:
	case EV_JOINED:
	case EV_HINT:
	case EV_NOTICE:
	case EV_ACK_ROUND:
	case EV_CLOSE:
	case EV_KILL:
	case EV_GONE:
		if (sim->quiet) {
			break;
		}
		if (ev->type == EV_FRAME && sim->now_ns < sim->link_ns) {
			SIM_MARK(sim, LINK_LOST);
			ev->at_ns = sim->link_ns;
			if (!evq_defer(&sim->evq, *ev)) {
				sim_fail(sim, "simulator: event queue overrun");
			}
			break;
		}
		if (sim->now_ns < sim->hosts[ev->side].stopped_ns) {
			ev->at_ns = sim->hosts[ev->side].stopped_ns;
			if (!evq_defer(&sim->evq, *ev)) {
				sim_fail(sim, "simulator: event queue overrun");
			}
			break;
		}
		if (ev->side == SIDE_RX) {
			check_acks(sim);
		}
		host_event(sim, ev);
		check_ends(sim, ev->side);
		if (ev->side == SIDE_RX) {
			note_acks(sim);
		}
		sim->quiet = is_over(sim);
		break;
	case EV_TYPE_COUNT:
		break;
	}
}

static void describe_stuck(struct sim *sim)
{
	sim_fail(sim,
		 "no progress: tx %llu sent %llu acknowledged %llu released, rx %llu posted %llu "
		 "complete %llu released, of %llu to %llu",
		 (unsigned long long)sim->tx.next_seq, (unsigned long long)sim->tx.acked_seq,
		 (unsigned long long)sim->tx.released_seq,
		 (unsigned long long)sim->rx.book.posted_seq,
		 (unsigned long long)sim->rx.book.next_seq,
		 (unsigned long long)sim->rx.released_seq, (unsigned long long)sim->conf.first_seq,
		 (unsigned long long)(sim->conf.first_seq + sim->conf.msg_count));
	for (unsigned int s = 0; s < SIDE_COUNT; s++) {
		for (unsigned int p = 0; p < sim->conf.path_count; p++) {
			const struct repair_path *path = &sim->hosts[s].end->paths[p];

			TRACE(sim, "%s path %u: %s, errored %d, cutting %d, %u items, %u receives",
			      s == SIDE_TX ? "tx" : "rx", p, path_state_name(path->state),
			      path->errored, path->cutting, wrq_out(&path->sq), path->recvs_out);
		}
	}
}

/* One event of a comm; false when it has none left, or failed. */
static bool step(struct sim *sim, uint32_t *count)
{
	struct ev ev;

	if (sim->failed || !evq_pop(&sim->evq, &ev)) {
		return false;
	}
	running = sim;
	sim->now_ns = ev.at_ns;
	if (!sim->quiet && sim->now_ns > sim->disturbed_ns + PROGRESS_NS) {
		describe_stuck(sim);
		return false;
	}
	if ((*count)++ > EVENTS_MAX) {
		sim_fail(sim, "simulator: too many events");
	}
	dispatch(sim, &ev);
	return true;
}

static uint64_t next_ns(const struct sim *sim)
{
	return sim->evq.count ? sim->evq.heap[0].at_ns : UINT64_MAX;
}

/* Whose turn it is: time is the same for both. */
static struct sim *earlier(struct sim *sim)
{
	struct sim *other = sim->sibling;

	return other && next_ns(other) < next_ns(sim) ? other : sim;
}

static void run(struct sim *sim)
{
	uint32_t count = 0;

	while (step(earlier(sim), &count)) {
	}
	for (struct sim *s = sim; s; s = s == sim ? sim->sibling : NULL) {
		if (!s->failed && !s->quiet && s->evq.count == 0) {
			sim_fail(s, "simulator: nothing left to happen");
		}
	}
}

/* The second comm speaks for itself, but the run is the first one's. */
static void join(struct sim *sim, struct sim *second)
{
	for (unsigned int i = 0; i < sizeof(sim->marks) / sizeof(sim->marks[0]); i++) {
		sim->marks[i] |= second->marks[i];
	}
	SIM_MARK(sim, TWO_COMMS);
	if (!sim->failed && second->failed) {
		sim_fail(sim, "second comm: %.280s", second->failure);
	}
}

static void set_up_both(struct sim sims[2], uint64_t seed)
{
	running = &sims[0];
	sims[0].sibling = NULL;
	set_up(&sims[0], seed);
	if (!sims[0].conf.has_sibling) {
		return;
	}
	conf_draw_sibling(&sims[1].conf, &sims[0].conf);
	memset(sims[1].marks, 0, sizeof(sims[1].marks));
	sims[1].trace.on = sims[0].trace.on;
	sims[1].trace.live = sims[0].trace.live;
	sims[1].sibling = NULL; /* until it is made */
	running = &sims[1];
	set_up(&sims[1], sims[1].conf.seed);
	sims[1].sibling = &sims[0];
	sims[0].sibling = &sims[1];
}

bool sim_run(struct sim sims[2], uint64_t seed)
{
	struct sigaction action = {.sa_handler = on_abort}, before;
	struct sim *sim = &sims[0];

	conf_draw(&sim->conf, seed);
	log_sink_set(on_log);
	sigaction(SIGABRT, &action, &before);
	if (sigsetjmp(aborted, 1) == 0) {
		set_up_both(sims, seed);
		run(sim);
	} else {
		sim_fail(running, "aborted");
	}
	if (sim->sibling) {
		join(sim, sim->sibling);
	}
	sigaction(SIGABRT, &before, NULL);
	log_sink_set(NULL);
	running = NULL;
	return !sim->failed;
}
