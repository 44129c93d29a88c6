#!/bin/bash
# A job whose caller left a file open for it at descriptor 3: it runs here and reads it, or fails and names it.
set -u
T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77
trap 'cd /; rm -rf "$T"' EXIT
cd "$T"; remrun --no-local true || { echo "no pool"; exit 77; }
echo content > in; exec 3<in; bad=0
said=$(gleaner run sh -c 'cat <&3; echo {}' ::: a 2>&1); rc=$?
[ $rc = 0 ] && [ "$said" = "$(printf 'content\na')" ] || { echo "status $rc: $said"; bad=1; }
said=$(gleaner run --no-local cat ::: in 2>&1) && { echo "--no-local: it ran"; bad=1; }
case $said in *"descriptor 3 is open"*"$T/in"*) ;; *) echo "not named: $said"; bad=1;; esac
exec 3<&-
[ "$(gleaner run --no-local cat ::: in 2>&1)" = content ] || { echo "without it"; bad=1; }
exit $bad
