/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_PLUGIN_PATH_LIST_H
#define BRAID_PLUGIN_PATH_LIST_H

#include <stddef.h>

struct comm;

/**
 * Every path of the comm, what became of it and why, those with the same fate together:
 *
 *   DOWN (port down): mlx5_0:1-mlx5_0, mlx5_1:1-mlx5_1; UP: mlx5_2:1-mlx5_2
 *
 * The peer's rail is named without its port, as in its own log's device names. What does not fit
 * into `size_bytes` (512 hold 16 paths with names as drivers give them) is counted: "and 3 more".
 * Comm's lock held.
 */
void path_list_write(const struct comm *comm, char *text, size_t size_bytes);

#endif
