#!/bin/bash
# Commands of one pipeline wait for each other: more of them than the pool has places end as here, whichever of them comes first, also with a
# command of this machine among them. Who computes is not joined by others.
. "$(dirname "$(readlink -f "$0")")/casepool.sh"
hub && worker w0 && c gleaner use "$(token client)" >/dev/null && served || exit 77
bad=0; is() { [ "$2" = "$3" ] || { echo "$1: '$2', not '$3'"; bad=1; }; }
R() { c timeout 60 remrun --no-local "$@"; }
is "seven stages" "$(seq 300000 | R cat | R cat | R cat | R cat | R cat | R cat | R tail -n 1)" 300000
is "one here among them" "$(R yes | sed s/y/x/ | R head -n 200000 | R cat | R tail -n 1)" x
is "the reader first" "$( (sleep 2; R seq 9) | R cat | R cat | R tail -n 1)" 9
mkfifo $T/p1 $T/p2 $T/p3; for n in 1 2 3; do R cat < $T/p$n > $T/o$n & done
seq 200000 | tee $T/p1 $T/p2 > $T/p3; wait $(jobs -p | tail -n 3); is "branches" "$(sort -u <(cksum < $T/o1) <(cksum < $T/o2) <(cksum < $T/o3))" "$(seq 200000 | cksum)"
spin() { R sh -c 'i=0; while [ $i -lt 1500000 ]; do i=$((i+1)); done'; }
spin & a=$!; spin & b=$!; sleep 0.5; most=0
for i in $(seq 3); do R true & done
for i in $(seq 10); do now=$(c gleaner status | awk '$1 == "tasks" { print $2 }'); [ "${now:-0}" -gt $most ] && most=$now; sleep 0.05; done
is "places of two that compute" $most 2; wait $a $b
exit $bad
