#!/bin/bash
# Results named by process id: several runs must not overwrite one another's.
set -u
T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77
trap 'cd /; rm -rf "$T"' EXIT
cd "$T"
remrun --no-local true || { echo "no pool"; exit 77; }
for i in 1 2 3 4; do remrun sh -c 'echo run > trace.$$'; done
count=$(ls trace.* | wc -l)
echo "$count files of 4 runs"
[ "$count" = 4 ]
