/* SPDX-License-Identifier: Apache-2.0 */
#include "oob/proc.h"
#include "test/unit/oob_proxy.h"
#include "test/unit/oob_rig.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * Links to another process, which this test starts as a copy of itself: killed, stopped, forked.
 */

extern char **environ;

/** What the other process is told over its control socket. */
enum order {
	ORDER_CONNECT = 'c', /* followed by a struct oob_addr: get a link to it */
	ORDER_FORK = 'f'     /* fork a child that only sleeps; answers its pid */
};

static int peer_main(int control)
{
	struct oob_link *link = NULL;
	struct oob_addr addr;
	struct rig rig;
	char order;

	rig_open(&rig);
	rig.echo = 1;
	oob_net_addr(rig.net, &addr);
	if (write(control, &addr, sizeof(addr)) != sizeof(addr)) {
		return 1;
	}
	while (read(control, &order, 1) == 1) {
		pid_t pid;

		if (order == ORDER_CONNECT) {
			if (read(control, &addr, sizeof(addr)) != sizeof(addr) ||
			    oob_link_get(rig.net, &addr, &link) != 0) {
				return 2;
			}
			continue;
		}
		pid = fork();
		if (pid == 0) {
			close(control);
			alarm(60);
			pause();
			_exit(0);
		}
		if (write(control, &pid, sizeof(pid)) != sizeof(pid)) {
			return 3;
		}
	}
	oob_link_put(link);
	rig_close(&rig);
	return 0;
}

struct other {
	pid_t pid;
	int control;
	struct oob_addr addr;
	struct rig rig; /* this end */
	struct oob_link *link;
};

static int other_open(void **state)
{
	struct other *other = calloc(1, sizeof(*other));
	char fd_text[16];
	char *argv[] = {"peer", fd_text, NULL};
	int ends[2];

	assert_non_null(other);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	/* the child's end survives exec; nothing else here does */
	snprintf(fd_text, sizeof(fd_text), "%d", dup(ends[1]));
	assert_int_equal(posix_spawn(&other->pid, "/proc/self/exe", NULL, NULL, argv, environ), 0);
	close(ends[1]);
	close(atoi(fd_text));
	other->control = ends[0];
	assert_int_equal(recv(other->control, &other->addr, sizeof(other->addr), MSG_WAITALL),
			 sizeof(other->addr));
	rig_open(&other->rig);
	*state = other;
	return 0;
}

static int other_close(void **state)
{
	struct other *other = *state;
	int status;

	oob_link_put(other->link);
	rig_close(&other->rig);
	close(other->control);
	if (other->pid > 0) {
		kill(other->pid, SIGCONT);
		assert_int_equal(waitpid(other->pid, &status, 0), other->pid);
		assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	free(other);
	return 0;
}

static void other_kill(struct other *other)
{
	assert_int_equal(kill(other->pid, SIGKILL), 0);
	assert_int_equal(waitpid(other->pid, NULL, 0), other->pid);
	other->pid = 0;
}

static void other_link(struct other *other)
{
	assert_int_equal(oob_link_get(other->rig.net, &other->addr, &other->link), 0);
	rig_wait(&other->rig, up_count, 1);
}

static void expect_gone_soon(struct other *other, uint64_t since_ns)
{
	rig_wait(&other->rig, gone_count, 1);
	print_message("gone after %.1f ms: %s\n",
		      (double)(other->rig.gone_at_ns - since_ns) / NS_PER_MS, other->rig.gone_why);
	assert_true(other->rig.gone_at_ns - since_ns < 2 * NS_PER_SEC);
	assert_int_equal(other->rig.gone_err, -ECONNREFUSED);
}

static void exchange_and_goodbye(void **state)
{
	struct other *other = *state;
	int status;

	other_link(other);
	for (uint64_t i = 1; i <= 1000; i++) {
		assert_int_equal(rig_send(other->link, 0, i), 0);
	}
	rig_wait_stream(&other->rig, 0, 1000);
	/* the peer leaves in good order */
	shutdown(other->control, SHUT_WR);
	rig_wait(&other->rig, gone_count, 1);
	assert_int_equal(other->rig.gone_err, -ESHUTDOWN);
	assert_int_equal(other->rig.lost_count, 0);
	assert_int_equal(waitpid(other->pid, &status, 0), other->pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	other->pid = 0;
}

static void killed_peer_is_gone(void **state)
{
	struct other *other = *state;
	uint64_t since_ns;

	other_link(other);
	since_ns = clock_mono_ns();
	other_kill(other);
	expect_gone_soon(other, since_ns);
	assert_int_equal(other->rig.lost_count, 1);
	assert_int_equal(rig_send(other->link, 0, 1), -EPIPE);
}

/** The first address leads nowhere: the link comes up over the next, and only that one counts. */
static void killed_peer_at_second_address_is_gone(void **state)
{
	struct other *other = *state;
	uint64_t since_ns;

	other->addr.addrs[1] = other->addr.addrs[0];
	other->addr.addrs[0].bytes[3] = 77; /* 127.0.0.77: nobody listens there */
	other->addr.addr_count = 2;
	other_link(other);
	since_ns = clock_mono_ns();
	other_kill(other);
	expect_gone_soon(other, since_ns);
}

static void killed_connector_is_gone(void **state)
{
	struct other *other = *state;
	struct oob_addr self;
	uint64_t since_ns;

	oob_net_addr(other->rig.net, &self);
	assert_int_equal(write(other->control, "c", 1), 1);
	assert_int_equal(write(other->control, &self, sizeof(self)), sizeof(self));
	rig_wait(&other->rig, up_count, 1);
	other->link = other->rig.link;
	oob_link_hold(other->link);
	since_ns = clock_mono_ns();
	other_kill(other);
	expect_gone_soon(other, since_ns);
}

/** A child of the dead process has copies of its descriptors: they must not keep it alive. */
static void killed_peer_with_a_child_is_gone(void **state)
{
	struct other *other = *state;
	uint64_t since_ns;
	pid_t child;

	other_link(other);
	assert_int_equal(write(other->control, "f", 1), 1);
	assert_int_equal(recv(other->control, &child, sizeof(child), MSG_WAITALL), sizeof(child));
	since_ns = clock_mono_ns();
	other_kill(other);
	expect_gone_soon(other, since_ns);
	assert_int_equal(kill(child, SIGKILL), 0);
}

static void stopped_peer_is_waited_for(void **state)
{
	struct other *other = *state;
	uint64_t number = 0;

	other_link(other);
	assert_int_equal(kill(other->pid, SIGSTOP), 0);
	/* more than its receive buffer takes */
	while (rig_send(other->link, 0, number + 1) == 0) {
		number++;
	}
	assert_false(rig_wait_ms(&other->rig, &other->rig.gone_count, 1, 3000));
	assert_int_equal(other->rig.lost_count, 0);
	assert_int_equal(kill(other->pid, SIGCONT), 0);
	rig_wait_stream(&other->rig, 0, number);
	assert_int_equal(other->rig.gone_count, 0);
}

/** Connected through a proxy that has just cut the connection, while the peer is stopped. */
static void cut_while_stopped(struct other *other, struct proxy *proxy)
{
	assert_int_equal(proxy_start(proxy, other->addr.port, 3), 0);
	other->addr.port = proxy->port;
	other_link(other);
	assert_int_equal(kill(other->pid, SIGSTOP), 0);
	proxy_cut_all(proxy);
	rig_wait(&other->rig, lost_count, 1);
	for (uint64_t i = 1; i <= 100; i++) {
		assert_int_equal(rig_send(other->link, 0, i), 0);
	}
}

static void stopped_peer_resumes_after_a_cut(void **state)
{
	struct other *other = *state;
	struct proxy proxy;

	cut_while_stopped(other, &proxy);
	/* beyond the time an answer is waited for */
	assert_false(rig_wait_ms(&other->rig, &other->rig.gone_count, 1, 6000));
	assert_int_equal(other->rig.up_count, 1);
	assert_int_equal(kill(other->pid, SIGCONT), 0);
	rig_wait_stream(&other->rig, 0, 100);
	assert_int_equal(other->rig.up_count, 2);
	assert_int_equal(other->rig.gone_count, 0);
	oob_link_put(other->link);
	other->link = NULL;
	oob_net_close(other->rig.net);
	oob_loop_stop(other->rig.loop);
	proxy_stop(&proxy);
	rig_open(&other->rig);
}

/** In a child of fork() nothing of the parent's works, and nothing hangs. */
static int child_of_fork(struct rig *rig, struct oob_link *link, const struct oob_addr *self)
{
	struct frame frame = {.type = FRAME_GOODBYE};
	struct oob_link *other = NULL;
	struct proc_id id;

	if (oob_proc_self(&id) != 0 || oob_proc_equal(&id, &self->proc)) {
		return 1;
	}
	if (oob_link_send(link, &frame) != -EPIPE) {
		return 2;
	}
	if (oob_link_get(rig->net, self, &other) != -ESHUTDOWN) {
		return 3;
	}
	oob_link_hold(link);
	oob_link_put(link);
	oob_link_put(link);
	oob_link_put(link);
	oob_net_close(rig->net);
	oob_loop_stop(rig->loop);
	return 0;
}

static void fork_leaves_the_parent_alone(void **state)
{
	struct other *other = *state;
	struct oob_addr self;
	int status;
	pid_t pid;

	other_link(other);
	oob_net_addr(other->rig.net, &self);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		alarm(30);
		_exit(child_of_fork(&other->rig, other->link, &self));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(rig_send(other->link, 0, 1), 0);
	rig_wait_stream(&other->rig, 0, 1);
	assert_int_equal(other->rig.lost_count, 0);
}

#define OTHER_TEST(name) cmocka_unit_test_setup_teardown(name, other_open, other_close)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		OTHER_TEST(exchange_and_goodbye),
		OTHER_TEST(killed_peer_is_gone),
		OTHER_TEST(killed_peer_at_second_address_is_gone),
		OTHER_TEST(killed_connector_is_gone),
		OTHER_TEST(killed_peer_with_a_child_is_gone),
		OTHER_TEST(stopped_peer_is_waited_for),
		OTHER_TEST(stopped_peer_resumes_after_a_cut),
		OTHER_TEST(fork_leaves_the_parent_alone),
	};

	if (argc == 2 && strcmp(argv[0], "peer") == 0) {
		/*
		 * Not through exit: LeakSanitizer stops all threads with ptrace there, and does not
		 * come back in a process that was stopped and continued before. What this code
		 * might leak the parent would leak as well.
		 */
		_exit(peer_main(atoi(argv[1])));
	}
	return cmocka_run_group_tests_name("oob_peer", tests, NULL, NULL);
}
