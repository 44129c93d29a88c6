#!/bin/bash
# What has an access list keeps those here that use it, and not those whose program has used it in another folder, or of another name.
set -u; T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77; cd "$T"
trap 'cd /; rm -rf "$T"' EXIT
command -v setfacl > needed && gleaner status --json | grep -q '"connected": *true' || { echo "no pool, or no setfacl"; exit 77; }
export GLEANER_PREFER=there; bad=0; mkdir a b
there() { timeout 60 remrun --no-local "$@" > said 2>&1 || { echo "$*: $? $(cat said)"; bad=1; }; }
for n in a b; do echo "$n" > $n/t; echo "$n" > $n/u; echo 'all: ; @cat t' > $n/Makefile; done
there make -C a; there make -C b
setfacl -m u:5:r a/t 2> why || { cat why; exit 77; }
timeout 60 remrun -v make -C a > said 2> err; grep -q 'runs here' err || { echo "who uses it: $(cat err)"; bad=1; }
[ "$(grep -x a said)" = a ] || { echo "who uses it: $(cat said)"; bad=1; }
for n in 1 2; do
    (cd b; there make); (cd a; there cat u)
    (cd a; timeout 60 remrun --no-local cat t) > said 2>&1; [ $? = 125 ] && grep -q 'access list' said || { echo "--no-local: $(cat said)"; bad=1; }
done
(cd a; timeout 60 remrun -v cat t 2>&1) > said; grep -qx a said && grep -q 'runs here' said || { echo "named: $(cat said)"; bad=1; }
setfacl -b a/t; (cd a; there cat t; there make)
[ $SECONDS -lt 15 ] || { echo "it took $SECONDS s: launches waited for what was not sent"; bad=1; }
exit $bad
