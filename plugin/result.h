/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_PLUGIN_RESULT_H
#define BRAID_PLUGIN_RESULT_H

/*
 * What NCCL is told. The layers below speak -errno; only this module knows NCCL's codes.
 *
 *   peer gone or no path left       remote    ECONNRESET ECONNREFUSED ECONNABORTED EPIPE ENOTCONN
 *                                             ESHUTDOWN EHOSTDOWN EHOSTUNREACH ENETDOWN ENETRESET
 *                                             ENETUNREACH ETIMEDOUT EREMOTEIO
 *   peer is no Braid, or another    remote    EPROTO EPROTONOSUPPORT EBADMSG
 *   refused by system or driver     system    ENOMEM EMFILE ENFILE ENOSPC EAGAIN EBUSY EPERM EACCES
 *                                             ENODEV ENXIO ENOENT ENOSYS EOPNOTSUPP EADDRINUSE
 *                                             EADDRNOTAVAIL EINTR ENOBUFS EDQUOT
 *   memory, key or length at fault  system    EFAULT EMSGSIZE
 *   bad argument from NCCL          argument  EINVAL EBADF ERANGE EOVERFLOW
 *   broken invariant, our bug       internal  EIO, and every number not listed
 */

#include "include/nccl_net.h"

/** NCCL's code for `rc`, which is 0 or -errno. Any thread. */
enum nccl_result result_from_errno(int rc);

#endif
