/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/launcher.h"
#include "test/driver/rank.h"

int main(int argc, char **argv)
{
	/* Too large for comfort on the stack, and one process has only one. */
	static struct options opt;

	options_parse(&opt, argc, argv);
	return opt.rank >= 0 ? rank_run(&opt) : launcher_run(&opt);
}
