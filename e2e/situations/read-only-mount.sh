#!/bin/bash
# A Python module on a read-only mount: that its byte code cannot be kept does not fail the program; and a write there is refused
# to the program itself.
set -u
T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77
trap 'cd /; rm -rf "$T"' EXIT
cd "$T"
remrun --no-local true || { echo "no pool"; exit 77; }
[ "$(id -u)" = 0 ] || { echo "needs root"; exit 77; }
mkdir ro; mount -t tmpfs t ro || exit 77
echo 'x = 5' > ro/mod.py; mount -o remount,ro ro; bad=0
said=$(PYTHONPATH=ro remrun python3 -c 'import mod; print(mod.x)'); rc=$?
[ $rc = 0 ] && [ "$said" = 5 ] || { echo "module: status $rc"; bad=1; }
said=$(remrun sh -c 'touch ro/new 2>/dev/null || echo refused'); rc=$?
[ $rc = 0 ] && [ "$said" = refused ] || { echo "touch: status $rc, said: $said"; bad=1; }
umount ro
exit $bad
