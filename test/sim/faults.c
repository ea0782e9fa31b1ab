/* SPDX-License-Identifier: Apache-2.0 */
#include "test/sim/sim.h"

enum {
	US = 1000,
	MS = 1000 * US
};

static void push_fault(struct sim *sim, unsigned int idx)
{
	struct fault *f = &sim->conf.faults[idx];

	if (f->fired) {
		return;
	}
	f->fired = true;
	sim_push(sim, (struct ev){.at_ns = sim->now_ns + f->delay_ns,
				  .type = EV_FAULT,
				  .path = f->path,
				  .side = f->side,
				  .arg = idx});
}

void fault_on_bytes(struct sim *sim, uint32_t len_bytes)
{
	sim->placed_bytes += len_bytes;
	if (sim->placed_bytes < sim->next_fault_bytes) {
		return;
	}
	sim->next_fault_bytes = UINT64_MAX;
	for (unsigned int i = 0; i < sim->conf.fault_count; i++) {
		struct fault *f = &sim->conf.faults[i];
		uint64_t at = f->value * sim->user.total_bytes / 1000;

		if (f->when != WHEN_BYTES || f->fired) {
			continue;
		}
		if (at <= sim->placed_bytes) {
			push_fault(sim, i);
		} else if (at < sim->next_fault_bytes) {
			sim->next_fault_bytes = at;
		}
	}
}

void fault_hook(struct sim *sim, enum fault_when when)
{
	uint32_t count = ++sim->hook_counts[when];

	for (unsigned int i = 0; i < sim->conf.fault_count; i++) {
		struct fault *f = &sim->conf.faults[i];

		if (f->when == when && f->value == count && !f->fired) {
			push_fault(sim, i);
			if (f->kind < FAULT_GARBLE && when == WHEN_BEGIN) {
				SIM_MARK(sim, FAULT_IN_FENCE);
			}
			if (f->kind < FAULT_GARBLE && when == WHEN_REPLAY) {
				SIM_MARK(sim, FAULT_IN_REPLAY);
			}
		}
	}
}

/* The software hears of it sooner or later; twice does no harm. */
static void notice(struct sim *sim, unsigned int side, unsigned int path, enum cause cause)
{
	uint64_t most = cause == CAUSE_STALL ? 300 * MS : 20 * MS;
	uint64_t at = sim->now_ns + rng_spread(&sim->rng, 10 * US, most);

	sim_push(sim, (struct ev){.at_ns = at,
				  .type = EV_NOTICE,
				  .side = (uint8_t)side,
				  .path = (uint8_t)path,
				  .arg = cause});
	sim_disturb(sim, at);
}

static uint64_t heal_ns(struct sim *sim)
{
	uint64_t at = sim->now_ns + rng_spread(&sim->rng, 1 * MS, 1500 * MS);

	if (!sim->conf.heals || rng_chance(&sim->rng, 100)) {
		return UINT64_MAX;
	}
	sim_disturb(sim, at);
	return at;
}

/* Both directions heal at once, and the later of two faults decides. */
static void wire_break(struct sim *sim, const struct fault *f, unsigned int mask)
{
	uint64_t at = heal_ns(sim);

	for (unsigned int s = 0; s < SIDE_COUNT; s++) {
		struct net_wire *wire = &sim->net.wires[s][f->path];

		if (!(mask >> s & 1)) {
			continue;
		}
		if (f->kind == FAULT_LARGE_LOSS) {
			wire->drops_large = true;
		} else {
			wire->drops = wire->drops || f->kind != FAULT_ACKLOSS;
			wire->drops_acks = true;
		}
		wire->holds = false;
		wire->release_ns = at > wire->release_ns ? at : wire->release_ns;
		if (wire->release_ns != UINT64_MAX) {
			sim_push(sim, (struct ev){.at_ns = wire->release_ns,
						  .type = EV_HEAL,
						  .side = (uint8_t)s,
						  .path = f->path});
		}
	}
}

/* Held or dropped for a while. */
static void wire_pause(struct sim *sim, const struct fault *f, unsigned int mask, uint64_t len_ns)
{
	for (unsigned int s = 0; s < SIDE_COUNT; s++) {
		struct net_wire *wire = &sim->net.wires[s][f->path];

		if (!(mask >> s & 1) || wire->drops || wire->drops_acks || wire->drops_large ||
		    wire->holds) {
			continue;
		}
		wire->drops = f->kind == FAULT_BLIP;
		wire->holds = f->kind == FAULT_HOLD;
		wire->release_ns = sim->now_ns + len_ns;
		sim_push(sim, (struct ev){.at_ns = wire->release_ns,
					  .type = EV_HEAL,
					  .side = (uint8_t)s,
					  .path = f->path});
	}
}

void fault_heal(struct sim *sim, const struct ev *ev)
{
	struct net_wire *wire = &sim->net.wires[ev->side][ev->path];

	if (wire->release_ns != sim->now_ns) {
		return;
	}
	TRACE(sim, "wire of path %u from %s is whole", ev->path, ev->side == SIDE_TX ? "tx" : "rx");
	*wire = (struct net_wire){.garbles_ns = wire->garbles_ns};
	if (sim->conf.heals && rng_chance(&sim->rng, 500)) {
		sim_push(sim,
			 (struct ev){.at_ns = sim->now_ns + rng_spread(&sim->rng, 10 * US, 20 * MS),
				     .type = EV_HINT,
				     .side = (uint8_t)rng_below(&sim->rng, 2),
				     .path = ev->path});
	}
}

void fault_revive(struct sim *sim, const struct ev *ev)
{
	struct net_nic *nic = &sim->net.nics[ev->side][ev->path];

	if (nic->revive_ns == sim->now_ns) {
		TRACE(sim, "HCA of path %u at %s works again", ev->path,
		      ev->side == SIDE_TX ? "tx" : "rx");
		nic->dead = false;
	}
}

static void strike_nic(struct sim *sim, const struct fault *f)
{
	struct net_nic *nic = &sim->net.nics[f->side][f->path];

	net_nic_die(sim, f->side, f->path);
	nic->revive_ns = heal_ns(sim);
	if (nic->revive_ns != UINT64_MAX) {
		sim_push(sim, (struct ev){.at_ns = nic->revive_ns,
					  .type = EV_REVIVE,
					  .side = f->side,
					  .path = f->path});
	}
	if (f->draw % 10 < 7) {
		notice(sim, f->side, f->path, CAUSE_DEVICE_FATAL);
	}
}

static void strike_host(struct sim *sim, const struct fault *f)
{
	struct host *host = &sim->hosts[f->side];
	uint64_t until = sim->now_ns + (f->draw % (f->draw & 1 ? 500 : 5) + 1) * MS;

	/* A requester that never gives up would fill the simulator's memory in that time. */
	if (f->kind == FAULT_STOP && (f->draw >> 16) % 64 == 0 && sim->conf.retry_count) {
		until = sim->now_ns + 60000ull * MS;
		SIM_MARK(sim, STOPPED_LONG);
	}
	if (f->kind == FAULT_STOP) {
		host->stopped_ns = until > host->stopped_ns ? until : host->stopped_ns;
		SIM_MARK(sim, HOST_STOPPED);
	} else {
		host->nap_ns = until;
		host_wake(sim, f->side, until);
	}
	sim_disturb(sim, until);
}

/* The link, and probes: nothing that is lost by it. */
static void strike_talk(struct sim *sim, const struct fault *f)
{
	uint64_t until = sim->now_ns + (f->draw % (f->draw & 1 ? 2000 : 30) + 1) * MS;
	struct net_wire *wire = &sim->net.wires[f->side][f->path];

	if (f->kind == FAULT_LINK_LOST) {
		sim->link_ns = until > sim->link_ns ? until : sim->link_ns;
	} else if (f->kind == FAULT_LINK_FULL) {
		sim->hosts[f->side].full_ns = until;
	} else {
		wire->garbles_ns = until > wire->garbles_ns ? until : wire->garbles_ns;
	}
	sim_disturb(sim, until);
}

/* Faults that take the path away, whether or not the software notices by itself. */
static void strike_path(struct sim *sim, const struct fault *f)
{
	unsigned int mask = f->draw % 3 + 1;

	switch ((int)f->kind) {
	case FAULT_BLACKHOLE:
		wire_break(sim, f, 3);
		break;
	case FAULT_ONEWAY:
	case FAULT_ACKLOSS:
	case FAULT_LARGE_LOSS:
		wire_break(sim, f, 1u << f->side);
		break;
	case FAULT_HOLD:
		wire_pause(sim, f, mask, rng_spread(&sim->rng, 100 * US, 1000 * MS));
		break;
	case FAULT_NIC_DEATH:
		strike_nic(sim, f);
		break;
	case FAULT_PORT_DOWN:
		wire_break(sim, f, 3);
		notice(sim, f->side, f->path, CAUSE_PORT_DOWN);
		break;
	case FAULT_PORT_GLITCH:
		sim_push(sim, (struct ev){.at_ns = sim->now_ns,
					  .type = EV_NOTICE,
					  .side = f->side,
					  .path = f->path,
					  .arg = CAUSE_PORT_DOWN});
		return;
	case FAULT_QP_ERR:
		net_qp_error(sim, f->side, f->path, f->draw & 1 ? CAUSE_FLUSH : CAUSE_LOC_QP_OP);
		break;
	case FAULT_POST_FAIL:
		sim->hosts[f->side].post_fail_mask |= 1u << f->path;
		break;
	default:
		break;
	}
	if (sim->conf.told || f->kind == FAULT_SPURIOUS) {
		notice(sim, f->draw >> 8 & 1, f->path, CAUSE_STALL);
	}
	if (sim->conf.told && f->draw >> 9 & 1) {
		notice(sim, !(f->draw >> 8 & 1), f->path, CAUSE_STALL);
	}
}

/* What hits rails, hosts or the link hits every comm that uses them. */
static bool is_shared(enum fault_kind kind)
{
	return kind != FAULT_QP_ERR && kind != FAULT_SPURIOUS && kind != FAULT_POST_FAIL &&
	       kind != FAULT_NAP && kind != FAULT_CLOSE;
}

static void strike(struct sim *sim, const struct fault *f)
{
	sim_disturb(sim, sim->now_ns);
	if (f->kind == FAULT_STOP || f->kind == FAULT_NAP) {
		strike_host(sim, f);
	} else if (f->kind == FAULT_CLOSE || f->kind == FAULT_KILL) {
		sim_push(sim, (struct ev){.at_ns = sim->now_ns,
					  .type = f->kind == FAULT_CLOSE ? EV_CLOSE : EV_KILL,
					  .side = f->side});
	} else if (f->kind >= FAULT_GARBLE && f->kind <= FAULT_LINK_FULL) {
		strike_talk(sim, f);
	} else if (f->kind == FAULT_BLIP) {
		wire_pause(sim, f, 3, sim->conf.rto_ns / 4);
	} else {
		strike_path(sim, f);
	}
}

void fault_strike(struct sim *sim, const struct ev *ev)
{
	static const char *const names[] = {
		"black hole",   "one-way cut",       "acknowledgement loss",
		"held packets", "NIC death",         "port down",
		"QP error",     "port glitch",       "false alarm",
		"failing post", "long packets lost", "garbled probes",
		"lost link",    "full link",         "blip",
		"host stop",    "user nap",          "close",
		"kill"};
	const struct fault *f = &sim->conf.faults[ev->arg];
	unsigned int next = (unsigned int)ev->arg + 1;

	TRACE(sim, "FAULT %u: %s, path %u, side %s", (unsigned int)ev->arg, names[f->kind], f->path,
	      f->side == SIDE_TX ? "tx" : "rx");
	strike(sim, f);
	if (sim->sibling && !sim->sibling->quiet && is_shared(f->kind)) {
		sim->sibling->now_ns = sim->now_ns;
		TRACE(sim->sibling, "FAULT of the sibling: %s, path %u", names[f->kind], f->path);
		strike(sim->sibling, f);
	}
	if (next < sim->conf.fault_count && sim->conf.faults[next].when == WHEN_AFTER) {
		push_fault(sim, next);
	}
}
