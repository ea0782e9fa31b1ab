/* SPDX-License-Identifier: Apache-2.0 */
#include "repair/path.h"

#include <stdio.h>
#include <string.h>

/*
 * Prints what repair/path.c's table says, for readers that are not C: the model (promela), the
 * drawing in ARCHITECTURE.md (mermaid), Graphviz (dot). It asks path_step(), so it can't disagree.
 */
static const struct {
	unsigned int bit;
	const char *name;
} actions[] = {
	{PATH_ACT_BEGIN, "BEGIN"},       {PATH_ACT_KEEP, "KEEP"},
	{PATH_ACT_ANNOUNCE, "ANNOUNCE"}, {PATH_ACT_RECONCILE, "RECONCILE"},
	{PATH_ACT_PROBE, "PROBE"},       {PATH_ACT_RESUME, "RESUME"},
};

enum {
	ACTION_COUNT = sizeof(actions) / sizeof(actions[0])
};

static void print_actions(unsigned int set, const char *before, const char *between)
{
	for (unsigned int i = 0; i < ACTION_COUNT; i++) {
		if (set & actions[i].bit) {
			printf("%s%s", before, actions[i].name);
			before = between;
			set &= ~actions[i].bit;
		}
	}
	if (set) {
		fprintf(stderr, "table: an action has no name here: %#x\n", set);
	}
}

static unsigned int known_actions(void)
{
	unsigned int all = 0;

	for (unsigned int i = 0; i < ACTION_COUNT; i++) {
		all |= actions[i].bit;
	}
	return all;
}

/* True when each action of the table has a name above. */
static bool is_complete(void)
{
	for (unsigned int s = 0; s < PATH_STATE_COUNT; s++) {
		for (unsigned int e = 0; e < PATH_EVENT_COUNT; e++) {
			struct path_step step = path_step((enum path_state)s, (enum path_event)e);

			if (step.legal && (step.actions & ~known_actions())) {
				return false;
			}
		}
	}
	return true;
}

/* One inline a event: moves st[x], sets act; an illegal pair is a failed comm. */
static void promela_event(enum path_event event)
{
	printf("inline on_%s(x)\n{\n\tfrom = st[x];\n\tif\n", path_event_name(event));
	for (unsigned int s = 0; s < PATH_STATE_COUNT; s++) {
		struct path_step step = path_step((enum path_state)s, event);

		if (step.legal) {
			printf("\t:: st[x] == %s ->\n\t\tst[x] = %s; act = 0",
			       path_state_name((enum path_state)s), path_state_name(step.next));
			print_actions(step.actions, " | ACT_", " | ACT_");
			printf("\n");
		}
	}
	printf("\t:: else ->\n\t\tact = 0; P1(false)\n\tfi;\n\tnote_step(x, %u)\n}\n",
	       (unsigned int)event);
}

static void promela(void)
{
	printf("/* Generated from the table in repair/path.c. */\n");
	for (unsigned int s = 0; s < PATH_STATE_COUNT; s++) {
		printf("#define %s %u\n", path_state_name((enum path_state)s), s);
	}
	for (unsigned int i = 0; i < ACTION_COUNT; i++) {
		printf("#define ACT_%s %u\n", actions[i].name, actions[i].bit);
	}
	printf("#define STATE_NAMES \"%s\"", path_state_name(PATH_PARKED));
	for (unsigned int s = 1; s < PATH_STATE_COUNT; s++) {
		printf(", \"%s\"", path_state_name((enum path_state)s));
	}
	printf("\n#define EVENT_NAMES \"%s\"", path_event_name(PATH_EV_READY));
	for (unsigned int e = 1; e < PATH_EVENT_COUNT; e++) {
		printf(", \"%s\"", path_event_name((enum path_event)e));
	}
	printf("\n");
	for (unsigned int e = 0; e < PATH_EVENT_COUNT; e++) {
		promela_event((enum path_event)e);
	}
}

/* Edges of one pair of states, the events that only keep the state without an action left out. */
static void edges(const char *head, const char *tail)
{
	for (unsigned int s = 0; s < PATH_STATE_COUNT; s++) {
		for (unsigned int e = 0; e < PATH_EVENT_COUNT; e++) {
			struct path_step step = path_step((enum path_state)s, (enum path_event)e);

			if (!step.legal || (step.next == s && step.actions == PATH_ACT_NONE)) {
				continue;
			}
			printf(head, path_state_name((enum path_state)s),
			       path_state_name(step.next), path_event_name((enum path_event)e));
			print_actions(step.actions, " / ", ", ");
			printf("%s", tail);
		}
	}
}

int main(int argc, char **argv)
{
	if (!is_complete()) {
		fprintf(stderr, "table: repair/path.h has an action that is not listed here\n");
		return 1;
	}
	if (argc == 2 && strcmp(argv[1], "promela") == 0) {
		promela();
	} else if (argc == 2 && strcmp(argv[1], "mermaid") == 0) {
		printf("stateDiagram-v2\n\t[*] --> PARKED\n");
		edges("\t%s --> %s: %s", "\n");
	} else if (argc == 2 && strcmp(argv[1], "dot") == 0) {
		printf("digraph path {\n\trankdir=LR;\n\tnode [shape=box];\n");
		edges("\t%s -> %s [label=\"%s", "\"];\n");
		printf("}\n");
	} else {
		fprintf(stderr, "usage: table promela | mermaid | dot\n");
		return 2;
	}
	return 0;
}
