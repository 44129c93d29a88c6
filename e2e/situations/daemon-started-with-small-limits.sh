#!/bin/bash
# The client daemon is started by a caller with small limits: later callers without them are not concerned.
. "$(dirname "$(readlink -f "$0")")/ordinaryuser.sh"
as gleaner stop >/dev/null 2>&1; sleep 0.5
as bash -c 'ulimit -f 100; remrun true'
head -c 300000 /dev/zero > from; chown 65534 from; bad=0
for i in 1 2 3; do
    as remrun cp from to; rc=$?
    [ $rc = 0 ] || { echo "copying 300 kB: status $rc"; bad=1; }
    rm -f to
    as gleaner stop >/dev/null 2>&1; sleep 0.3; as bash -c 'ulimit -f 100; remrun true'
done
exit $bad
