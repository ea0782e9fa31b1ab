/* SPDX-License-Identifier: Apache-2.0 */
#define NET_V 9
#include "test/driver/netapi_version.h"
