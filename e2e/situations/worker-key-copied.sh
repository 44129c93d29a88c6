#!/bin/bash
# A worker's state folder was copied to another machine (two workers with one key), and another, healthy worker is there: commands must end
# in their right result (on the healthy one at the latest), and somebody must be told.
. "$(dirname "$(readlink -f "$0")")/casepool.sh"
pool || exit 77
worker w1; sleep 2
mkdir -p $T/w2; cp -a $T/w0/state $T/w0/config $T/w2/   # in a mount namespace without control groups, as if on another machine
WPRE="exec unshare -m --propagation private sh -c 'umount -Rl /sys/fs/cgroup; exec gleaner worker --name w2 --cpus 2';" worker w2; sleep 3
ok=0; for i in $(seq 12); do c timeout 60 remrun --no-local sh -c "sleep 0.5; echo right $i" >$T/out 2>$T/err; rc=$?; [ $rc = 0 ] && ok=$((ok+1)) || echo "status $rc: $(head -1 $T/err)"; done
n=$(grep -c 'joined node' $T/hub.log); sleep 5; m=$(grep -c 'joined node' $T/hub.log)
echo "$ok of 12 right; $((m-n)) new connections in 5 idle s; hub's log warns: $(grep -ciE 'WARN.*(key|twice|copy|same)' $T/hub.log); status: $(c gleaner status | grep -E '^w0')"
[ $ok = 12 ] && [ $((m-n)) -lt 5 ]
