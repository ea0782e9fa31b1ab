/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_PLUGIN_NET_TABLES_H
#define BRAID_PLUGIN_NET_TABLES_H

/* The symbols NCCL looks up, all that the shared object exports. Names are NCCL's. */

#include "include/nccl_net.h"

#define NET_EXPORT __attribute__((visibility("default")))

extern NET_EXPORT const struct nccl_net_v6 ncclNetPlugin_v6;
extern NET_EXPORT const struct nccl_net_v7 ncclNetPlugin_v7;
extern NET_EXPORT const struct nccl_net_v8 ncclNetPlugin_v8;
extern NET_EXPORT const struct nccl_net_v9 ncclNetPlugin_v9;
extern NET_EXPORT const struct nccl_net_v10 ncclNetPlugin_v10;
extern NET_EXPORT const struct nccl_net_v11 ncclNetPlugin_v11;
extern NET_EXPORT const struct nccl_net_v12 ncclNetPlugin_v12;

#endif
