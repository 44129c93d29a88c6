#!/bin/bash
# The disk of the client's state is full, the target's has room: the error must name the disk that is full, and must not point at
# `gleaner recover` if nothing is kept there.
. "$(dirname "$(readlink -f "$0")")/casepool.sh"
mkdir -p $T/client/state; mount -t tmpfs -o size=8m t $T/client/state || exit 77; chmod 700 $T/client/state
pool || exit 77
dd if=/dev/zero of=$T/client/state/ballast bs=64k 2>/dev/null; dd if=/dev/zero of=$T/client/state/ballast2 bs=512 2>/dev/null
mkdir $T/x; cd $T/x
c remrun --no-local sh -c 'head -c 100000 /dev/zero > made' 2>$T/err; echo "status $?: $(cat $T/err)"
rm -f $T/client/state/ballast $T/client/state/ballast2; c gleaner recover 2>&1 | head -5 | tee $T/rec; [ -e made ] && echo "made is there"
bad=0; grep -q "no room on the disk for $T/x" $T/err && { echo "names the target's disk, which has room"; bad=1; }
grep -q 'gleaner recover' $T/err && ! grep -q '^task' $T/rec && { echo "points at gleaner recover, where nothing is kept"; bad=1; }
exit $bad
