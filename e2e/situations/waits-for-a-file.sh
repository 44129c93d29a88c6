#!/bin/bash
# A command that looks again and again for a file of this machine: to come and to go, or to change. It ends as here, and says why it waits where it
# has said something already.
set -u; T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77; cd "$T"
trap 'kill $p 2>/dev/null; cd /; rm -rf "$T"' EXIT; p=
gleaner status --json | grep -q '"connected": *true' || { echo "no pool"; exit 77; }
export GLEANER_PREFER=there; bad=0; touch lock; echo old > state; : > out
(sleep 2; touch ready; rm lock; echo new > state) &
timeout 60 remrun sh -c 'until [ -e ready ]; do sleep 0.3; done; while [ -e lock ]; do sleep 0.3; done; echo came' > came & a=$!
timeout 60 remrun --no-local sh -c 'until grep -q new state; do sleep 0.3; done; echo changed' > changed & c=$!
wait $a || { echo "comes: $?"; bad=1; }; wait $c || { echo "changes: $?"; bad=1; }
[ "$(cat came changed | xargs)" = "came changed" ] || { head came changed; bad=1; }
remrun -v sh -c 'echo begun; until [ -e later ]; do sleep 0.3; done' > out 2> err & p=$!
for i in $(seq 200); do grep -q begun out && break; sleep 0.1; done; touch later
for i in $(seq 200); do grep -q 'seems to wait until' err && break; sleep 0.1; done
grep -q 'seems to wait until' err || { echo "nothing said: $(cat out err)"; bad=1; }
exit $bad
