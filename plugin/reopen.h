/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_PLUGIN_REOPEN_H
#define BRAID_PLUGIN_REOPEN_H

#include "ib/rail.h"

/**
 * As ib_rail_refresh(); and when the rail is out and its HCA is there again as another device, that
 * is opened first (ib/reopen.h). Rail's worker.
 *
 * It is taken into use only when no connection can post on the old one: each of its paths there is
 * PARKED, FENCED or DOWN, or its connection has failed or is being closed. Those that are not are
 * fenced, and the next attempt looks again. They stay so while it is taken over, because from
 * ib_reopen_begin() on nothing made with the old device comes into use: a join looks at that under
 * the connection's lock before its path is PROBING (plugin/rejoin_ops.c), and a path that a
 * connection begins with is fenced at once (plugin/setup.c). So no work request meets a key of the
 * other device: not on the old queue pairs, where nothing is posted any more, and not on new ones,
 * whose paths join with the keys of that moment (repair/rejoin.h).
 */
int reopen_refresh(struct ib_rail *rail);

#endif
