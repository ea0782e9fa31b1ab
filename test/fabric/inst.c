/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/inst.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static _Atomic(struct fab_inst *) peer_maps[FAB_MAX_INSTS];
static pthread_mutex_t peer_lock = PTHREAD_MUTEX_INITIALIZER;

static int inst_path(char path[PATH_MAX], const char *dir, uint32_t id)
{
	return snprintf(path, PATH_MAX, "%s/inst-%u.shm", dir, id) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static int inst_map(const char *dir, uint32_t id, int flags, struct fab_inst **inst)
{
	char path[PATH_MAX];
	void *map;
	int fd;
	int rc = inst_path(path, dir, id);

	if (rc != 0) {
		return rc;
	}
	fd = open(path, O_RDWR | O_CLOEXEC | flags, 0600);
	if (fd < 0) {
		return -errno;
	}
	if ((flags & O_CREAT) != 0 && ftruncate(fd, (off_t)FAB_INST_BYTES) != 0) {
		rc = -errno;
		close(fd);
		return rc;
	}
	map = mmap(NULL, FAB_INST_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	rc = map == MAP_FAILED ? -errno : 0;
	close(fd);
	if (rc == 0) {
		*inst = map;
	}
	return rc;
}

/* State letter and start time of a process; 0 when it is gone. */
static char proc_stat(uint32_t pid, uint64_t *start)
{
	char path[64];
	char text[1024];
	char state;
	char *after;
	ssize_t got;
	int fd;

	snprintf(path, sizeof(path), "/proc/%u/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		return 0;
	}
	got = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (got <= 0) {
		return 0;
	}
	text[got] = '\0';
	after = strrchr(text, ')'); /* the name before it may hold anything */
	if (after == NULL || after[1] != ' ') {
		return 0;
	}
	state = after[2];
	after += 2;
	for (int field = 3; field < 22 && after != NULL; field++) {
		after = strchr(after + 1, ' ');
	}
	*start = after != NULL ? strtoull(after, NULL, 10) : 0;
	return state;
}

int fab_inst_create(struct fab_root *root, const char *dir, const struct fab_inst_ports *ports,
		    struct fab_inst **inst)
{
	struct fab_inst_row *row;
	struct fab_inst *made;
	uint32_t id;
	int rc;

	fab_mutex_lock(&root->lock);
	id = atomic_load_explicit(&root->inst_count, memory_order_relaxed) + 1;
	if (id >= FAB_MAX_INSTS) {
		fab_mutex_unlock(&root->lock);
		return -ENOSPC;
	}
	atomic_store_explicit(&root->inst_count, id, memory_order_release);
	fab_mutex_unlock(&root->lock);

	rc = inst_map(dir, id, O_CREAT | O_EXCL, &made);
	if (rc != 0) {
		return rc;
	}
	made->magic = FAB_MAGIC;
	made->id = id;
	made->host = ports->host;
	made->rail = ports->rail;
	made->rail_count = ports->rail_count;
	made->pid = (uint32_t)getpid();
	made->base = (uint64_t)(uintptr_t)made;
	made->dead_count = fab_root_deaths(root, ports->host, ports->rail, ports->rail_count);
	made->pull_count = fab_root_pulls(root, ports->host, ports->rail, ports->rail_count);
	fab_mutex_init(&made->event_lock);
	fab_mutex_init(&made->atomic_lock);
	row = &root->insts[id];
	row->pid = made->pid;
	row->host = ports->host;
	row->rail = ports->rail;
	row->rail_count = ports->rail_count;
	proc_stat(row->pid, &row->pid_start);
	atomic_store_explicit(&row->state, FAB_INST_LIVE, memory_order_release);
	*inst = made;
	return 0;
}

void fab_inst_close(struct fab_root *root, const char *dir, struct fab_inst *inst)
{
	char path[PATH_MAX];

	atomic_store_explicit(&root->insts[inst->id].state, FAB_INST_CLOSED, memory_order_release);
	if (inst_path(path, dir, inst->id) == 0) {
		unlink(path);
	}
	munmap(inst, FAB_INST_BYTES);
}

struct fab_inst *fab_inst_peer(struct fab_root *root, const char *dir, uint32_t id)
{
	struct fab_inst *inst;

	if (id >= FAB_MAX_INSTS ||
	    atomic_load_explicit(&root->insts[id].state, memory_order_acquire) != FAB_INST_LIVE) {
		return NULL;
	}
	inst = atomic_load_explicit(&peer_maps[id], memory_order_acquire);
	if (inst != NULL) {
		return inst;
	}
	pthread_mutex_lock(&peer_lock);
	inst = atomic_load_explicit(&peer_maps[id], memory_order_relaxed);
	if (inst == NULL && inst_map(dir, id, 0, &inst) == 0) {
		atomic_store_explicit(&peer_maps[id], inst, memory_order_release);
	}
	pthread_mutex_unlock(&peer_lock);
	return inst;
}

void fab_inst_forget_peers(void)
{
	pthread_mutex_lock(&peer_lock);
	for (uint32_t id = 0; id < FAB_MAX_INSTS; id++) {
		struct fab_inst *inst =
			atomic_exchange_explicit(&peer_maps[id], NULL, memory_order_acq_rel);

		if (inst != NULL) {
			munmap(inst, FAB_INST_BYTES);
		}
	}
	pthread_mutex_unlock(&peer_lock);
}

static long futex_op(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *ts)
{
	return syscall(SYS_futex, word, op, value, ts, NULL, 0);
}

void fab_inst_ring(struct fab_inst *inst)
{
	/* Pairs with fab_inst_wait(): bump, then look at `sleeping`; the engine sets `sleeping`,
	 * then looks at the doorbell. Sequentially consistent, so one of the two sees the other. */
	atomic_fetch_add_explicit(&inst->doorbell, 1, memory_order_seq_cst);
	if (atomic_load_explicit(&inst->sleeping, memory_order_seq_cst) != 0) {
		futex_op(&inst->doorbell, FUTEX_WAKE, INT_MAX, NULL);
	}
}

void fab_inst_wait(struct fab_inst *inst, uint32_t seen, uint64_t timeout_ns)
{
	struct timespec ts = {
		.tv_sec = (time_t)(timeout_ns / 1000000000ull),
		.tv_nsec = (long)(timeout_ns % 1000000000ull),
	};

	atomic_store_explicit(&inst->sleeping, 1, memory_order_seq_cst);
	if (atomic_load_explicit(&inst->doorbell, memory_order_seq_cst) == seen) {
		futex_op(&inst->doorbell, FUTEX_WAIT, seen, timeout_ns == UINT64_MAX ? NULL : &ts);
	}
	atomic_store_explicit(&inst->sleeping, 0, memory_order_seq_cst);
}

void fab_inst_post_event(struct fab_inst *inst, const struct fab_event *event)
{
	uint32_t tail;

	fab_mutex_lock(&inst->event_lock);
	tail = atomic_load_explicit(&inst->event_tail, memory_order_relaxed);
	if (tail - atomic_load_explicit(&inst->event_head, memory_order_acquire) <
	    FAB_EVENT_COUNT) {
		inst->events[tail % FAB_EVENT_COUNT] = *event;
		atomic_store_explicit(&inst->event_tail, tail + 1, memory_order_release);
	}
	fab_mutex_unlock(&inst->event_lock);
	fab_inst_ring(inst);
}

bool fab_inst_take_event(struct fab_inst *inst, struct fab_event *event, uint64_t *due_ns)
{
	uint32_t head = atomic_load_explicit(&inst->event_head, memory_order_relaxed);

	*due_ns = UINT64_MAX;
	if (head == atomic_load_explicit(&inst->event_tail, memory_order_acquire)) {
		return false;
	}
	if (inst->events[head % FAB_EVENT_COUNT].due_ns > fab_now_ns()) {
		*due_ns = inst->events[head % FAB_EVENT_COUNT].due_ns;
		return false;
	}
	*event = inst->events[head % FAB_EVENT_COUNT];
	atomic_store_explicit(&inst->event_head, head + 1, memory_order_release);
	return true;
}

enum fab_life fab_inst_life(struct fab_root *root, uint32_t id)
{
	struct fab_inst_row *row = &root->insts[id];
	uint64_t start = 0;
	char state;

	if (atomic_load_explicit(&row->state, memory_order_acquire) != FAB_INST_LIVE) {
		return FAB_LIFE_GONE;
	}
	state = proc_stat(row->pid, &start);
	if (state == 0 || state == 'Z' || state == 'X' || start != row->pid_start) {
		return FAB_LIFE_GONE;
	}
	return state == 'T' || state == 't' ? FAB_LIFE_STOPPED : FAB_LIFE_RUNS;
}

void fab_inst_each(struct fab_root *root, const char *dir, uint32_t host, uint32_t rail,
		   void (*fn)(struct fab_inst *inst, void *arg), void *arg)
{
	uint32_t count = atomic_load_explicit(&root->inst_count, memory_order_acquire);

	for (uint32_t id = 1; id <= count; id++) {
		struct fab_inst_row *row = &root->insts[id];
		struct fab_inst *inst;

		if (atomic_load_explicit(&row->state, memory_order_acquire) != FAB_INST_LIVE ||
		    row->host != host || rail - row->rail >= row->rail_count) {
			continue;
		}
		inst = fab_inst_peer(root, dir, id);
		if (inst != NULL) {
			fn(inst, arg);
		}
	}
}
