#!/bin/bash
# Hub, worker and client of two versions of the protocol, in turns and while commands run: upgraded (the hub first), and taken back (the hub
# first again). Each command ends in its right result, and at each step the pool serves; one that says nothing for longer than silence may last
# is not lost where one side does not say that it has the task (before version 3). GLEANER_PROTOCOL stands for an older program.
. "$(dirname "$(readlink -f "$0")")/casepool.sh"
WAS=GLEANER_PROTOCOL=2; OLD="export $WAS;"; B=0
end_of() { kill $1; for i in $(seq 100); do kill -0 $1 2>/dev/null || return 0; sleep 0.1; done; echo "process $1 does not end"; return 1; }
rehub() { end_of $HUB || B=1; HUBPRE=$1; hub || { echo "$2: the hub does not start: $(tail -n 2 $T/hub.log)"; B=1; }; }
reworker() { end_of $W || B=1; WPRE=$1; worker w0; }
silent() { local said; said=$(c timeout 60 remrun --no-local sh -c 'sleep 28; echo over' 2>&1); [ "$said" = over ] || { echo "$1: a silent command: $said"; B=1; }; }
step() { local said; said=$(served 60) || { echo "$1: $said"; B=1; }; }

HUBPRE=$OLD; WPRE=$OLD
hub && worker w0 && c env $WAS gleaner use $(token client) >/dev/null 2>&1 && c env $WAS gleaner status >/dev/null && served || exit 77
: > $T/wrong; : > $T/count
mkdir $T/work
load() { local i=0 out; cd $T/work; while [ ! -e $T/enough ]; do i=$((i+1)); out=$(c timeout 100 remrun sh -c "echo $1-$i | tee made-$1-$i" 2>$T/why-$1); [ "$out" = "$1-$i" ] && [ "$(cat made-$1-$i 2>/dev/null)" = "$1-$i" ] || echo "$1-$i: '$out': $(tail -n 1 $T/why-$1)" >> $T/wrong; echo >> $T/count; done; }
load a & A=$!
load b & L=$!
rehub '' upgrade; step "the hub is new, the others are old"; silent "the hub is new"
reworker ''; step "hub and worker are new, the client is old"
c gleaner stop >/dev/null 2>&1; step "all are new"
rehub "$OLD" rollback; step "the hub is old again, the others are new"; silent "the hub is old again"
reworker "$OLD"; step "hub and worker are old again"
c gleaner stop >/dev/null 2>&1; c env $WAS gleaner status >/dev/null 2>&1; step "all are old again"
touch $T/enough; wait $A $L
[ -s $T/wrong ] && { echo "commands with a wrong end:"; cat $T/wrong; B=1; }
[ $(wc -l < $T/count) -ge 6 ] || { echo "only $(wc -l < $T/count) commands ran"; B=1; }
grep -h "refuses" $T/*.log && { echo "somebody was refused"; B=1; }
exit $B
