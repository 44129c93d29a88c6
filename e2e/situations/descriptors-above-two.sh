#!/bin/bash
# Descriptors above 2 that the caller has opened for the command.
set -u
T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77
trap 'cd /; rm -rf "$T"' EXIT
cd "$T"
remrun --no-local true || { echo "no pool"; exit 77; }
echo content > in; bad=0
[ "$(remrun sh -c 'cat <&3' 3< in)" = content ] || { echo "not read"; bad=1; }
remrun sh -c 'echo result >&4' 4> out
[ "$(cat out)" = result ] || { echo "not written"; bad=1; }
number='exec {fd}< in; echo $fd'
[ "$(remrun --no-local bash -c "$number" 10< /dev/null)" = "$(bash -c "$number" 10< /dev/null)" ] || { echo "another number is free"; bad=1; }
exit $bad
