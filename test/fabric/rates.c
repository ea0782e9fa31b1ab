/* SPDX-License-Identifier: Apache-2.0 */
#include <infiniband/verbs.h>

#include <stddef.h>

/* Static rates, in Mbit/s and in multiples of 2.5 Gbit/s. */

static const struct {
	enum ibv_rate rate;
	int mbps;
} rates[] = {
	{IBV_RATE_2_5_GBPS, 2500},   {IBV_RATE_5_GBPS, 5000},       {IBV_RATE_10_GBPS, 10000},
	{IBV_RATE_14_GBPS, 14062},   {IBV_RATE_20_GBPS, 20000},     {IBV_RATE_25_GBPS, 25781},
	{IBV_RATE_28_GBPS, 28125},   {IBV_RATE_30_GBPS, 30000},     {IBV_RATE_40_GBPS, 40000},
	{IBV_RATE_50_GBPS, 53125},   {IBV_RATE_56_GBPS, 56250},     {IBV_RATE_60_GBPS, 60000},
	{IBV_RATE_80_GBPS, 80000},   {IBV_RATE_100_GBPS, 103125},   {IBV_RATE_112_GBPS, 112500},
	{IBV_RATE_120_GBPS, 120000}, {IBV_RATE_168_GBPS, 168750},   {IBV_RATE_200_GBPS, 206250},
	{IBV_RATE_300_GBPS, 309375}, {IBV_RATE_400_GBPS, 425000},   {IBV_RATE_600_GBPS, 637500},
	{IBV_RATE_800_GBPS, 850000}, {IBV_RATE_1200_GBPS, 1275000},
};

#define RATE_COUNT (sizeof(rates) / sizeof(rates[0]))

int ibv_rate_to_mbps(enum ibv_rate rate)
{
	for (size_t i = 0; i < RATE_COUNT; i++) {
		if (rates[i].rate == rate) {
			return rates[i].mbps;
		}
	}
	return -1;
}

enum ibv_rate mbps_to_ibv_rate(int mbps)
{
	for (size_t i = 0; i < RATE_COUNT; i++) {
		if (rates[i].mbps == mbps) {
			return rates[i].rate;
		}
	}
	return IBV_RATE_MAX;
}

int ibv_rate_to_mult(enum ibv_rate rate)
{
	int mbps = ibv_rate_to_mbps(rate);

	return mbps > 0 && mbps % 2500 == 0 ? mbps / 2500 : -1;
}

enum ibv_rate mult_to_ibv_rate(int mult)
{
	return mult > 0 && mult <= 48 ? mbps_to_ibv_rate(mult * 2500) : IBV_RATE_MAX;
}
