/* SPDX-License-Identifier: Apache-2.0 */
#define NET_V 7
#include "test/driver/loopback_version.h"
