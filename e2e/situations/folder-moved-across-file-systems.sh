#!/bin/bash
# A folder is moved to another file system (mv, shutil.move): 125; here mv is told EXDEV and copies.
set -u
T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77
trap 'cd "$T"; clean 2>/dev/null; cd /; rm -rf --one-file-system "$T"' EXIT
clean() { :; }
cd "$T"; remrun --no-local true || { echo "no pool"; exit 77; }
bad() { echo "wrong: $*"; B=1; }; B=0
[ "$(id -u)" = 0 ] || exit 77
clean() { umount o; }
mkdir o p; mount -t tmpfs t o || exit 77; cd p
mkdir d; echo 1 > d/f; remrun mv d ../o/d; rc=$?; [ $rc = 0 ] && [ -e ../o/d/f ] && [ ! -e d ] || bad "mv: status $rc"
rm -rf d ../o/d; mkdir d; echo 1 > d/f; remrun python3 -c "import shutil; shutil.move('d','../o/d')"; rc=$?; [ $rc = 0 ] && [ -e ../o/d/f ] || bad "shutil.move: status $rc"
exit $B
