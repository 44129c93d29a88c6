#!/bin/bash
# Root makes a device node: refused on the worker, and not run here.
set -u
T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77
trap 'cd "$T"; clean 2>/dev/null; cd /; rm -rf --one-file-system "$T"' EXIT
clean() { :; }
cd "$T"; remrun --no-local true || { echo "no pool"; exit 77; }
bad() { echo "wrong: $*"; B=1; }; B=0
[ "$(id -u)" = 0 ] || exit 77
mknod a c 1 3 || exit 77
remrun mknod z c 1 3; rc=$?; [ $rc = 0 ] && [ -c z ] || bad "mknod: status $rc"
exit $B
