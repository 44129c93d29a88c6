#!/bin/bash
# A command whose output nobody reads ends within 5 s of a signal by that signal, also if its program has ended long before; and all is there for a reader who comes late.
set -u; T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77; cd "$T"
trap 'cd /; rm -rf "$T"' EXIT
gleaner status --json | grep -q '"connected": *true' || { echo "no pool"; exit 77; }
export GLEANER_PREFER=there; bad=0
for lines in 100000 300000 1000000; do
    began=$(date +%s)
    mkfifo out; sleep 30 < out & reader=$!
    timeout -k 20 3 remrun --no-local seq $lines > out; said=$?; kill $reader; wait $reader 2> /dev/null; rm out
    [ $said = 124 ] && [ $(($(date +%s) - began)) -le 12 ] || { echo "$lines lines: status $said after $(($(date +%s) - began)) s"; gleaner explain | tail -12; bad=1; }
done
said=$(timeout 60 remrun --no-local seq 300000 | (sleep 5; cksum)); [ "$said" = "$(seq 300000 | cksum)" ] || { echo "read late: $said"; bad=1; }
exit $bad
