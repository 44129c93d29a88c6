#!/bin/bash
# The caller is in another mount namespace than the client daemon: what it reads and writes must be its own files.
set -u
T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77
trap 'cd /; rm -rf "$T"' EXIT
cd "$T"
remrun --no-local true || { echo "no pool"; exit 77; }
[ "$(id -u)" = 0 ] || { echo "needs root"; exit 77; }
mkdir m; echo outside > m/f
unshare -m sh -c '
    mount -t tmpfs t m || exit 77
    echo inside > m/f
    [ "$(remrun cat m/f)" = inside ] || { echo "read the file outside"; exit 1; }
    remrun sh -c "echo more >> m/f"
    [ "$(tail -n 1 m/f)" = more ] || { echo "the change is not in the caller'"'"'s file"; exit 1; }'
rc=$?
[ "$(cat m/f)" = outside ] || { echo "a file outside was changed"; rc=1; }
exit $rc
