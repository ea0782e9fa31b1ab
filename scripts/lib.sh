# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Shared by the scripts of this folder; sourced, never run.

SKIP=77
repo_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# usage: help_wanted TEXT "$@" - prints TEXT and ends the script when --help is among the arguments.
help_wanted() {
	local text=$1 arg
	shift
	for arg in "$@"; do
		if [ "$arg" = --help ] || [ "$arg" = -h ]; then
			printf '%s\n' "$text"
			exit 0
		fi
	done
}

# usage: skip REASON - ends the script the way ctest counts as skipped.
skip() {
	echo "skipped: $*"
	exit "$SKIP"
}

# usage: need_tool COMMAND PACKAGE - skips when COMMAND is not installed.
need_tool() {
	command -v "$1" >/dev/null || skip "$1 is not installed (package $2)"
}

# usage: tree_files [PATTERN...] - the current folder's own files, one a line, relative, sorted;
# PATTERNs are matched against the file's name. Fixtures and build trees are left out. In a git
# checkout that is what git tracks or would track, so that a fresh file is looked at as well.
tree_files() {
	local file pattern
	if [ "$(git rev-parse --show-toplevel 2>/dev/null)" = "$(pwd -P)" ]; then
		git ls-files --cached --others --exclude-standard
	else
		find . -type f -not -path './build*' -not -path './.git/*' | sed 's|^\./||'
	fi | sort -u | while IFS= read -r file; do
		[ -f "$file" ] || continue
		case $file in
		*/fixtures/*) continue ;;
		esac
		if [ $# -eq 0 ]; then
			printf '%s\n' "$file"
			continue
		fi
		for pattern in "$@"; do
			# shellcheck disable=SC2053 # the right side is a pattern on purpose
			if [[ ${file##*/} == $pattern ]]; then
				printf '%s\n' "$file"
				break
			fi
		done
	done
}

# usage: verdict GATE COUNT - the closing line of a gate, and its exit status.
verdict() {
	if [ "$2" -ne 0 ]; then
		echo "$1: $2 violation(s)"
		exit 1
	fi
	echo "$1: clean"
}

# usage: build_jobs - how many compilers to run at once.
build_jobs() {
	local cpus
	cpus=$(nproc 2>/dev/null || echo 2)
	[ "$cpus" -le 8 ] || cpus=8
	echo "$cpus"
}
