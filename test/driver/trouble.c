/* SPDX-License-Identifier: Apache-2.0 */
#include "include/clock.h"
#include "test/driver/run.h"

#include <signal.h>
#include <stdio.h>

static void fault_install(struct run *run, uint32_t i)
{
	char text[OPT_TEXT_MAX + 16];

	run->faults[i].at_ns = clock_mono_ns();
	if (rails_fault(run->rails, run->opt->faults[i].rule, NULL)) {
		run_fail(run, "the fabric refused the fault '%s'", run->opt->faults[i].rule);
	}
	run->faults[i].done = true;
	snprintf(text, sizeof(text), "install %s", run->opt->faults[i].rule);
	sampler_mark(run->sampler, run->faults[i].at_ns, text);
}

static void signal_send(struct run *run, const struct opt_signal *want, struct trouble *trouble,
			int signal, const char *text)
{
	children_signal(&run->children, want->rank, signal);
	trouble->at_ns = clock_mono_ns();
	trouble->done = true;
	sampler_mark(run->sampler, trouble->at_ns, text);
}

static bool signal_due(const struct opt_signal *want, const struct trouble *trouble, uint32_t iter,
		       uint32_t percent)
{
	return want->armed && !trouble->done && want->iter == iter && percent >= want->percent;
}

void trouble_tick(struct run *run, uint32_t iter, uint32_t percent)
{
	const struct options *opt = run->opt;

	for (uint32_t i = 0; i < opt->fault_count; i++) {
		if (!run->faults[i].done && opt->faults[i].iter == iter &&
		    percent >= opt->faults[i].percent) {
			fault_install(run, i);
		}
	}
	for (uint32_t i = 0; i < opt->command_count; i++) {
		if (!run->commands[i].done && opt->commands[i].iter == iter &&
		    percent >= opt->commands[i].percent) {
			command_run(run, i);
		}
	}
	if (signal_due(&opt->kill, &run->killed, iter, percent)) {
		if (opt->kill.is_abort) {
			atomic_store_explicit(&run->shared->ranks[opt->kill.rank].abort_order, true,
					      memory_order_release);
		}
		signal_send(run, &opt->kill, &run->killed, opt->kill.is_abort ? 0 : SIGKILL,
			    opt->kill.is_abort ? "abort" : "kill");
	}
	if (signal_due(&opt->stop, &run->stopped, iter, percent)) {
		signal_send(run, &opt->stop, &run->stopped, SIGSTOP, "stop");
	}
}

bool trouble_pause_tick(struct run *run)
{
	const struct opt_signal *stop = &run->opt->stop;

	if (!run->stopped.done || run->continued.done) {
		return false;
	}
	if (clock_mono_ns() >= run->stopped.at_ns + stop->pause_ms * NS_PER_MS) {
		signal_send(run, stop, &run->continued, SIGCONT, "continue");
	}
	return true;
}

bool trouble_pending(const struct run *run, uint32_t iter)
{
	const struct options *opt = run->opt;
	bool pending = (opt->kill.armed && !run->killed.done && opt->kill.iter == iter) ||
		       (opt->stop.armed && !run->stopped.done && opt->stop.iter == iter);

	for (uint32_t i = 0; i < opt->fault_count; i++) {
		pending = pending || (!run->faults[i].done && opt->faults[i].iter == iter);
	}
	for (uint32_t i = 0; i < opt->command_count; i++) {
		pending = pending || (!run->commands[i].done && opt->commands[i].iter == iter);
	}
	return pending;
}
