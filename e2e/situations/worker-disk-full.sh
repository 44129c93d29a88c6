#!/bin/bash
# One worker's disk is full (its state is on a tmpfs of 60 MB; the other one has room). A task may fail clearly or be done elsewhere
# (TRUST, "worker ENOSPC is retried elsewhere"), but must not see that worker's ENOSPC and commit half of its result with status 0.
#
. "$(dirname "$(readlink -f "$0")")/casepool.sh"
mkdir -p $T/w0/state; mount -t tmpfs -o size=60m t $T/w0/state || exit 77; chmod 700 $T/w0/state
pool || exit 77
mkdir $T/g; cd $T/g; echo '#include <stdio.h>
int main(){return 0;}' > a.c; c remrun --no-local gcc -c a.c; c remrun --no-local gcc -o a a.o
c remrun --no-local sh -c 'i=0; while [ $i -lt 400 ]; do echo new$i > f$i; i=$((i+1)); done'
worker w1; sleep 1
fill() { dd if=/dev/zero of=$T/w0/state/ballast bs=64k 2>/dev/null; dd if=/dev/zero of=$T/w0/state/ballast2 bs=512 2>/dev/null; }
for r in 1 2 3 4 5 6 7 8 9 10; do mkdir -p $T/x$r; cd $T/x$r; for i in $(seq 50); do echo old > app.$i; done; head -c 3000 /dev/urandom > more
c remrun --no-local cat more >/dev/null; fill
[ -n "${FILL:-}" ] || { ( while [ -d $T ]; do head -c 4000000 /dev/zero >> $T/w0/state/ballast; sleep 0.02; done 2>/dev/null ) & FILL=$!; }   # what the worker frees, others take
c timeout 120 gleaner run -j 4 --no-local sh -c 'cat more >> app.{}; echo c > cr.{}; true' ::: $(seq 50) >$T/out 2>$T/err; rc=$?
bad=0; for i in $(seq 50); do s=$(stat -c %s app.$i); [ -f cr.$i ] && [ $s != 3004 ] && bad=$((bad+1)); done
echo "status $rc, $bad of 50 tasks committed by halves; $(tail -1 $T/err)"
[ $bad = 0 ] || break; done
grep -o 'attempt 1 came to nothing[^"]*' $T/client/state/client/tasks.jsonl | head -1 | cut -c1-200
kill $FILL
[ $bad = 0 ]
