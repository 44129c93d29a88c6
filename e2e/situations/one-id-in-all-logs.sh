#!/bin/bash
# `remrun -v`, the client daemon's, the hub's and the worker's logs, the audit log, `tasks` and `explain` name a task alike.
. "$(dirname "$(readlink -f "$0")")/casepool.sh"
HUBPRE='export GLEANER_LOG=debug;'; WPRE=$HUBPRE; B=0
bad() { echo "wrong: $*"; B=1; }
hub && worker w0 && c gleaner use $(token client) >/dev/null 2>&1 && c env GLEANER_LOG=debug gleaner status >/dev/null && served || exit 77
c remrun --no-local -v sh -c 'exit 3' 2>$T/said
id=$(grep -o 'gleaner explain [0-9a-f]*' $T/said | cut -d' ' -f3)
[ ${#id} = 8 ] || { cat $T/said; bad "remrun -v names no task"; exit 1; }
# What is written to logs comes a moment later.
sleep 0.5
for log in $T/hub.log $T/w0.log $T/client/run/daemon.log; do
    [ $(grep -c "task=$id" $log) -ge 2 ] || bad "$log tells of $id: $(grep -c "task=$id" $log) times; its end: $(tail -n 2 $log)"
done
part hub gleaner audit --last 20 | grep -q "task=$id" || bad "the audit log does not name it"
c gleaner tasks | grep -q "^$id .*exit 3" || bad "tasks: $(c gleaner tasks | head -n 3)"
c gleaner explain $id | grep -q "^status *exit 3" || bad "explain $id: $(c gleaner explain $id 2>&1 | head -n 3)"
# Another instance of the same task has the same id: its worker is lost while it runs.
c remrun --no-local -v sh -c 'echo > begun; sleep 2' 2>$T/said & R=$!
for i in $(seq 100); do id=$(c gleaner tasks | grep running | cut -d' ' -f1 | head -n 1); [ -n "$id" ] && grep -q "runs task=$id" $T/w0.log && break; sleep 0.1; done
kill -9 $W; worker w1; wait $R
grep -q "explain $id" $T/said || bad "the task that was begun again is called otherwise: $id, $(cat $T/said)"
grep -q "task=$id" $T/w1.log || bad "w1's log does not name $id: $(tail -n 3 $T/w1.log)"
exit $B
