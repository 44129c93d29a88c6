#!/bin/bash
# Appending to a file that the file system lets grow only (chattr +a).
set -u
T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77
trap 'cd /; rm -rf "$T"' EXIT
cd "$T"
remrun --no-local true || { echo "no pool"; exit 77; }
[ "$(id -u)" = 0 ] || { echo "needs root"; exit 77; }
echo a > log; chattr +a log || { echo "no such attribute here"; exit 77; }
remrun sh -c 'echo b >> log'; rc=$?
last=$(tail -n 1 log); chattr -a log
echo "status $rc; last line: $last"
[ $rc = 0 ] && [ "$last" = b ]
