/* SPDX-License-Identifier: Apache-2.0 */
#define NET_V 11
#include "test/driver/loopback_version.h"
