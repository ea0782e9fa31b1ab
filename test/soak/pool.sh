# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Shared by the scripts of this folder; sourced, never run. A pool of at most $jobs processes.

trap 'exit 130' INT TERM # which is an EXIT

# What runs: the item's name by process id.
declare -A pool_items=()
pool_failed=0

# usage: dir_create - makes a folder for the runs, $dir, that goes with the script; in memory if there is
# room for some dozens of emulated adapters.
dir_create() {
	local tmp=${TMPDIR:-/tmp}
	if [ -w /dev/shm ] && [ "$(df -k --output=avail /dev/shm | tail -n 1)" -gt 2000000 ]; then
		tmp=/dev/shm
	fi
	dir=$(mktemp -d "$tmp/braid_soak.XXXXXX")
	trap 'pool_stop; rm -rf "$dir"' EXIT
}

# usage: pool_start ITEM COMMAND... - runs COMMAND in the background; there must be room.
pool_start() {
	local item=$1
	shift
	set -m # a process group of its own, to be ended with all that it started
	"$@" &
	set +m
	pool_items[$!]=$item
}

# usage: pool_wait - waits for one process; its item is in $pool_item, its status in $pool_status.
pool_wait() {
	local pid=
	pool_status=0
	wait -n -p pid "${!pool_items[@]}" || pool_status=$?
	# shellcheck disable=SC2034 # for the caller
	pool_item=${pool_items[$pid]}
	unset "pool_items[$pid]"
}

# usage: pool_stop - ends what still runs.
pool_stop() {
	local pid
	for pid in "${!pool_items[@]}"; do
		kill -- "-$pid" 2>/dev/null || true
	done
	for pid in "${!pool_items[@]}"; do
		wait "$pid" 2>/dev/null || true
	done
	pool_items=()
}

# usage: progress TEXT... - one line that is written over on a terminal, else one a minute.
progress_last=-60
progress() {
	if [ -t 1 ]; then
		printf '\r%-100s' "$*"
	elif [ $((SECONDS - progress_last)) -ge 60 ]; then
		progress_last=$SECONDS
		echo "$*"
	fi
}

# usage: progress_end - what is printed next begins on a line of its own.
progress_end() {
	[ ! -t 1 ] || printf '\r%-100s\r' ''
}

# usage: clock_text SECONDS - as 1:02:03 or 2:03.
clock_text() {
	if [ "$1" -ge 3600 ]; then
		printf '%d:%02d:%02d' $(($1 / 3600)) $(($1 / 60 % 60)) $(($1 % 60))
	else
		printf '%d:%02d' $(($1 / 60)) $(($1 % 60))
	fi
}

# A generator that gives the same everywhere: usage: draw_seed SEED..., then pick N: $picked is 0..N-1.
draw_seed() {
	draw_state=$((($1 * 1000003 + ${2:-0}) * 6364136223846793005 + 1442695040888963407))
	pick 2
}

pick() {
	draw_state=$((draw_state * 6364136223846793005 + 1442695040888963407))
	picked=$(((draw_state >> 33 & 0x7fffffff) % $1))
}
