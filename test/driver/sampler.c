/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/sampler.h"

#include "include/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
	SAMPLE_NS = 5000000
};

struct sampler {
	pthread_t thread;
	FILE *file; /**< stdio's own lock keeps the rows apart */
	struct rails *rails;
	uint32_t host_count;
	uint32_t rail_count;
	_Atomic int quit;
};

static void sample_write(struct sampler *sampler)
{
	uint64_t now_ns = clock_mono_ns();

	for (uint32_t host = 0; host < sampler->host_count; host++) {
		for (uint32_t rail = 0; rail < sampler->rail_count; rail++) {
			struct rail_bytes bytes = rails_read(sampler->rails, host, rail);

			fprintf(sampler->file,
				"sample,%" PRIu64 ",%u,%u,%" PRIu64 ",%" PRIu64 ",\n", now_ns, host,
				rail, bytes.tx, bytes.rx);
		}
	}
}

static void *sampler_main(void *arg)
{
	struct sampler *sampler = arg;
	struct timespec next;

	clock_gettime(CLOCK_MONOTONIC, &next);
	while (!atomic_load_explicit(&sampler->quit, memory_order_acquire)) {
		sample_write(sampler);
		next.tv_nsec += SAMPLE_NS;
		if (next.tv_nsec >= 1000000000L) {
			next.tv_nsec -= 1000000000L;
			next.tv_sec++;
		}
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
	}
	sample_write(sampler);
	return NULL;
}

int sampler_start(struct sampler **out, const char *path, struct rails *rails,
		  const struct options *opt)
{
	struct sampler *sampler = calloc(1, sizeof(*sampler));
	int err = -ENOMEM;

	if (!sampler) {
		return err;
	}
	sampler->rails = rails;
	sampler->host_count = opt->rank_count;
	sampler->rail_count = opt->rail_count;
	sampler->file = fopen(path, "w");
	if (!sampler->file) {
		err = -errno;
		goto free_sampler;
	}
	fputs("kind,time_ns,host,rail,tx_bytes,rx_bytes,text\n", sampler->file);
	err = -pthread_create(&sampler->thread, NULL, sampler_main, sampler);
	if (err) {
		goto close_file;
	}
	*out = sampler;
	return 0;

close_file:
	fclose(sampler->file);
free_sampler:
	free(sampler);
	return err;
}

void sampler_mark(struct sampler *sampler, uint64_t time_ns, const char *text)
{
	if (sampler) {
		fprintf(sampler->file, "mark,%" PRIu64 ",,,,,%s\n", time_ns, text);
	}
}

void sampler_stop(struct sampler *sampler)
{
	if (!sampler) {
		return;
	}
	atomic_store_explicit(&sampler->quit, 1, memory_order_release);
	pthread_join(sampler->thread, NULL);
	fclose(sampler->file);
	free(sampler);
}
