#!/bin/bash
# The working folder was removed: a command that does not need it runs all the same.
set -u
T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77
trap 'cd /; rm -rf "$T"' EXIT
cd "$T"
remrun --no-local true || { echo "no pool"; exit 77; }
mkdir gone; cd gone; rmdir ../gone
said=$(remrun echo hello); rc=$?
echo "status $rc"
[ $rc = 0 ] && [ "$said" = hello ]
