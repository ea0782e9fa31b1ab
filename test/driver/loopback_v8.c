/* SPDX-License-Identifier: Apache-2.0 */
#define NET_V 8
#include "test/driver/loopback_version.h"
