/* SPDX-License-Identifier: Apache-2.0 */
#define NET_V 12
#include "test/driver/netapi_version.h"
