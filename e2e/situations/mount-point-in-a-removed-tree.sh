#!/bin/bash
# A tree with a mount point in it is removed or replaced: the mount moves into Gleaner's state folder and stays there. Here: "busy", and the mount stays.
set -u
T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77
trap 'cd "$T"; clean 2>/dev/null; cd /; rm -rf --one-file-system "$T"' EXIT
clean() { :; }
cd "$T"; remrun --no-local true || { echo "no pool"; exit 77; }
bad() { echo "wrong: $*"; B=1; }; B=0
[ "$(id -u)" = 0 ] || exit 77
clean() { awk '$3=="tmpfs" && $1=="gldist"{print $2}' /proc/mounts | while read m; do umount -l "$m"; done; }
mkdir -p r/m; mount -t tmpfs gldist r/m || exit 77; touch r/m/x
remrun rm -rf r 2>/dev/null; rc=$?
at=$(awk '$1=="gldist"{print $2}' /proc/mounts)
[ "$at" = "$T/r/m" ] || bad "rm -rf: status $rc; mounted now at '$at'"
exit $B
