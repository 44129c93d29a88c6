#!/bin/bash
# The client daemon is frozen: what was not launched runs here, what was ends with a reason, and a signal ends it.
. "$(dirname "$(readlink -f "$0")")/casepool.sh"
pool || exit 77
bad=0
D=$(for p in $(grep -lsz "GLEANER_STATE_DIR=$T/client/state" /proc/[0-9]*/environ | cut -d/ -f3); do tr '\0' ' ' </proc/$p/cmdline | grep -q '^gleaner daemon' && echo $p; done)
[ -n "$D" ] || { echo "no daemon"; exit 77; }
c remrun --no-local sleep 300 2>$T/launched & L=$!
c remrun --no-local sleep 300 2>$T/interrupted & I=$!
sleep 2; kill -STOP $D
said=$(c timeout 40 remrun echo ran 2>$T/before); rc=$?
[ $rc = 0 ] && [ "$said" = ran ] && grep -q 'is stopped' $T/before || { echo "not launched: status $rc, $said, $(cat $T/before)"; bad=1; }
t=$(date +%s); pkill -TERM -P $I remrun; wait $I; rc=$?; t=$(( $(date +%s) - t ))
[ $rc = 143 ] && [ $t -le 10 ] || { echo "interrupted: status $rc after $t s, $(cat $T/interrupted)"; bad=1; }
for i in $(seq 40); do kill -0 $L 2>/dev/null || break; sleep 1; done
kill -0 $L 2>/dev/null && { echo "a launched command waits for ever"; bad=1; kill -9 $L; }
wait $L; rc=$?
[ $rc = 125 ] && grep -q 'is stopped' $T/launched || { echo "launched: status $rc, $(cat $T/launched)"; bad=1; }
kill -CONT $D
served 20 || bad=1
exit $bad
