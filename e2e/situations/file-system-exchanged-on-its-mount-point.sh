#!/bin/bash
# Two reproducible squashfs images (all times fixed) on one mount point, one after the other: contents and listings must be those
# of the image that is mounted.
set -u
T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77
trap 'cd /; rm -rf "$T"' EXIT
cd "$T"
remrun --no-local true || { echo "no pool"; exit 77; }
[ "$(id -u)" = 0 ] || { echo "needs root"; exit 77; }
command -v mksquashfs >/dev/null || { echo "needs squashfs-tools"; exit 77; }
for k in a b; do
    mkdir src$k; echo $k$k$k$k > src$k/f; echo x > src$k/only-$k
    mksquashfs src$k img$k -quiet -no-progress -all-root -all-time 1577836800 -mkfs-time 1577836800 >/dev/null 2>&1 || exit 77
done
mkdir m; bad=0
for k in a b a b; do
    mount -o loop,ro img$k m || exit 77
    [ "$(remrun cat m/f)" = $k$k$k$k ] || { echo "image $k: wrong content"; bad=1; }
    [ "$(remrun ls m)" = "$(ls m)" ] || { echo "image $k: wrong listing"; bad=1; }
    umount m
done
exit $bad
