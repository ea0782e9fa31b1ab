# SPDX-License-Identifier: Apache-2.0
# Part of scripts/soak --fabric: reads the logs of all trains (test/driver/train_log.c; before each a
# line "train SEED TIMERS", behind it the driver's brief line), prints the report, writes JSON.

function put(list, us) {
	count[list]++
	times[list, count[list]] = us + 0
}

# Sorts times[list, ...]; shell sort, since awk has none of its own.
function order(list,   n, gap, i, k, t) {
	n = count[list]
	for (gap = int(n / 2); gap > 0; gap = int(gap / 2)) {
		for (i = gap + 1; i <= n; i++) {
			t = times[list, i]
			for (k = i; k > gap && times[list, k - gap] > t; k -= gap) {
				times[list, k] = times[list, k - gap]
			}
			times[list, k] = t
		}
	}
}

function at(list, share,   i) {
	i = int(count[list] * share + 0.999999)
	return times[list, i < 1 ? 1 : i] / 1000
}

function row(list, text, target) {
	if (!count[list]) {
		printf "  %-58s none\n", text
		return
	}
	order(list)
	printf "  %-58s %6d %9.2f %9.2f %9.2f   %s\n", text, count[list], at(list, 0.5),
		at(list, 0.99), at(list, 1), target
	rows = rows (rows ? ",\n" : "") sprintf("    {\"what\": \"%s\", \"n\": %d, \"median_ms\": %.3f, \"p99_ms\": %.3f, \"worst_ms\": %.3f}", \
		list, count[list], at(list, 0.5), at(list, 0.99), at(list, 1))
}

/^train / { timers = $3; trains++; paused = 0 }

/^hit / {
	paused += $3 == "pause"
	if ($6 == 1) {
		fired[$3]++
		total++
		bytes[$3] += $9
		noticed[$3] += $7 != "-"
	}
	if ($5 == 1 && $4 == "event" && $8 != "-") {
		put("event", $8)
	}
	if ($5 == 1 && $4 == "silent" && $8 != "-") {
		put("found", $8 - $7)
		# One that strikes between two messages waits for the next.
		if ($0 ~ /(bytes|writes|imms)=/) {
			put("silent_" timers, $8)
		}
	}
}

/^back / { put("back_" timers, $3) }

/^end / {
	ends++
	replayed += $5
	links += $6
	# A call in which the process was stopped is as long as that.
	call_max = !paused && $7 > call_max ? $7 : call_max
}

/^verdict=/ {
	for (i = 1; i <= NF; i++) {
		if (split($i, part, "=") == 2 && part[2] ~ /^[0-9]+$/) {
			tally[part[1]] += part[2]
		}
	}
	if ($0 ~ /no end in sight|is not back|does not end|never fired/) {
		hangs++
	}
}

/^failed / { failures = failures (failures ? ", " : "") $2; failed++ }

END {
	printf "%d trains, %d faults, %d failed, %d s\n\n", trains, total, failed, seconds
	printf "  %-14s %8s %8s %14s\n", "fault", "struck", "noticed", "bytes replayed"
	cmd = "sort"
	for (class in fired) {
		printf "  %-14s %8d %8d %14.0f\n", class, fired[class], noticed[class], bytes[class] | cmd
		classes = classes (classes ? ", " : "") sprintf("\"%s\": %d", class, fired[class])
	}
	close(cmd)
	printf "\n  %-58s %6s %9s %9s %9s\n", "milliseconds", "n", "median", "99 %", "worst"
	row("event", "port or QP event to first replayed byte", "target 5, 50")
	row("found", "fault found (error completion) to first replayed byte", "target 5, 50")
	row("silent_fast", "black hole to first replayed byte, short time-outs", "")
	row("silent_default", "black hole to first replayed byte, default time-outs", "target 1000")
	row("back_fast", "mended to all paths in use, rejoin at 5 to 50 ms", "")
	row("back_default", "mended to all paths in use, rejoin at 200 to 1000 ms", "")
	printf "\n%.0f bytes replayed, %d links cut, longest isend, irecv, test or iflush %.1f ms\n",
		replayed, links, call_max / 1000
	printf "duplicates %d, losses %d, late writes %d, wrong elements %d, other damage %d, errors %d, hangs %d\n",
		tally["duplicates"], tally["early_dones"], tally["late_writes"], tally["wrong_elements"],
		tally["guard_hits"] + tally["size_errors"] + tally["api_errors"], tally["net_errors"], hangs
	if (json != "") {
		printf "{\"mode\": \"fabric\", \"first_seed\": %d, \"trains\": %d, \"faults\": %d, \"seconds\": %d,\n  \"failed_trains\": [%s],\n  \"classes\": {%s},\n  \"bytes_replayed\": %.0f, \"links_cut\": %d, \"longest_call_ms\": %.3f,\n  \"duplicates\": %d, \"losses\": %d, \"late_writes\": %d, \"wrong_elements\": %d, \"guard_hits\": %d, \"net_errors\": %d, \"hangs\": %d,\n  \"times\": [\n%s]}\n", \
			first, trains, total, seconds, failures, classes, replayed, links, call_max / 1000,
			tally["duplicates"], tally["early_dones"], tally["late_writes"],
			tally["wrong_elements"], tally["guard_hits"], tally["net_errors"], hangs, rows >json
	}
}
