/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_IB_REOPEN_H
#define BRAID_IB_REOPEN_H

#include "ib/mr.h"

/**
 * A HCA that its driver reported fatal (a reset of its firmware, a hot unplug), or that was removed
 * without a word (soft-RoCE), never works again for who has it open; when it is back it is another
 * device to verbs. Here it is opened again and takes the old one's place at all of its rails.
 *
 *   begin    the old device is LEFT: no queue pair can be made with it any more
 *   (caller) makes sure that nobody posts on the old device, see plugin/reopen.h
 *   finish   open the new one; the rails have it, in state PREPARED: registrations go there, and
 *            all that there are are moved; then USED: queue pairs are made with it
 *
 * So what a reader of a rail can meet: `device` changes once, under the table's lock, and is read
 * by taking a reference; the keys of a registration change one by one, and are read without a lock.
 * Those that the rail's paths post with were read after the path was taken into use, which is after
 * USED. Whoever reads them otherwise (a receive that is posted meanwhile) may get old ones, and is
 * corrected when the path rejoins (repair/rejoin.h).
 *
 * The old device is closed with the last queue pair that was made with it; nothing can land over it
 * before: its queue pairs are fenced or can't move anything, and its registrations are gone.
 *
 * Queue pair numbers and keys of the new one may begin where those of the old one did. A packet
 * that is still under way from before meets a new queue pair only if number, peer and the one
 * expected of 2^24 packet sequence numbers fit, which are drawn anew, and lands only if its key
 * does; its sender was fenced before the path went DOWN, so there is no second try.
 */
struct ib_reopen {
	struct ib_rail *rail;             /* who asked */
	struct ib_device *before;         /* a reference */
	struct ibv_device **list, *found; /* what verbs has now, and which of it is to be opened */
	uint64_t began_ns;
};

/**
 * Is there a device to open in place of the rail's? It is one with the same GUID or else the same
 * name, of which nothing is open in this process, and the rail's own is reported fatal or has no
 * ACTIVE port. 0 and *out, to be given to finish or cancel. -ENODEV: none. -EBUSY: another thread
 * is at it. -EAGAIN: looked just now. Blocks on device files: worker only.
 */
int ib_reopen_begin(struct ib_rail *rail, struct ib_reopen *out);

/** Not now: the old device is as it was. */
void ib_reopen_cancel(struct ib_reopen *reopen);

/**
 * Open it, if the rail's port works on it, and take over; one line says so. 0, or -errno and
 * everything is as it was. Blocks as verbs do, for as long as it takes to register all memory
 * again.
 */
int ib_reopen_finish(struct ib_reopen *reopen, const struct braid_config *cfg,
		     struct ib_mr_cache *cache);

#endif
