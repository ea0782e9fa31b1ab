/* SPDX-License-Identifier: Apache-2.0 */
/*
 * With STEPS: which path events are taken anywhere in the run, at which end and in which state of the
 * other end. Printed when the run is over; check_steps compares it with what the simulator took.
 */
#ifdef STEPS
hidden byte note_x, note_event;

c_decl {
	static unsigned char step_taken[2][8][8][8][8][3];

	static void steps_note(int x, int from, int event, int to, int peer, int ahead)
	{
		step_taken[x][from][event][to][peer][ahead + 1] = 1;
	}

	/* at the end of pan */
	static void __attribute__((destructor)) steps_print(void)
	{
		static const char *const ends[] = {"tx", "rx"};
		static const char *const states[] = {STATE_NAMES};
		static const char *const events[] = {EVENT_NAMES};
		const int all = sizeof(step_taken);
		int i;

		for (i = 0; i < all; i++) {
			if (((unsigned char *)step_taken)[i]) {
				printf("step %s %s %s %s %s %d\n", ends[i / (all / 2)],
				       states[i / 3 / 512 % 8], events[i / 3 / 64 % 8],
				       states[i / 3 / 8 % 8], states[i / 3 % 8], i % 3 - 1);
			}
		}
	}
}

/* An event that changes nothing is none. */
inline note_step(x, event)
{
	note_x = x;
	note_event = event;
	c_code {
		int own = note_x, peer = (own + PATHS) % (2 * PATHS);

		if (from != now.st[own] || act) {
			steps_note(own / PATHS, from, note_event, now.st[own], now.st[peer],
				   now.ep[own] - now.ep[peer]);
		}
	}
}
#else
inline note_step(x, event)
{
	skip
}
#endif
