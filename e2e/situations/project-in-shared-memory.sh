#!/bin/bash
# A project in /dev/shm: building there, and results there, as on any other file system.
set -u
T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77
trap 'cd /; rm -rf "$T"' EXIT
cd "$T"
remrun --no-local true || { echo "no pool"; exit 77; }
S=$(mktemp -d /dev/shm/gleaner-situation.XXXXXX) || exit 77
trap 'cd /; rm -rf "$T" "$S" /dev/shm/gl-case-result.$$' EXIT
cd "$S"; echo 'int main(void){return 4;}' > a.c; bad=0
remrun gcc a.c -o a; echo "gcc: status $?"
./a; [ $? = 4 ] || { echo "no program"; bad=1; }
cd "$T"
R=/dev/shm/gl-case-result.$$
remrun sh -c "echo x > $R"; rc=$?
[ $rc != 0 ] || [ -f "$R" ] || { echo "a result was dropped without a word"; bad=1; }
exit $bad
