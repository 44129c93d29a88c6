#!/bin/bash
# Standard output is a file on a full file system: the command must not seem to have ended well.
set -u
T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77
trap 'cd /; rm -rf "$T"' EXIT
cd "$T"
remrun --no-local true || { echo "no pool"; exit 77; }
[ "$(id -u)" = 0 ] || { echo "needs root"; exit 77; }
mkdir small; mount -t tmpfs -o size=64k t small || exit 77
bad=0
for n in 12000 20000 20000 50000 50000 400000; do
    remrun seq 1 $n > small/out 2>/dev/null; rc=$?
    size=$(stat -c %s small/out); : > small/out
    [ $rc != 0 ] || [ "$size" = "$(seq 1 $n | wc -c)" ] || { echo "status 0 with $size bytes of $(seq 1 $n | wc -c) written"; bad=1; }
done
umount small
exit $bad
