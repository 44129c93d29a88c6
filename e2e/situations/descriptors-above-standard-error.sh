#!/bin/bash
# Descriptors above 2 that a command does not use (config.log of a configure script, a script's log) keep nothing here. One that it
# uses ends it with a message that names the descriptor where it may not run here, and else it runs here.
set -u
T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77
trap 'cd /; rm -rf "$T"' EXIT
cd "$T"
remrun --no-local true || { echo "no pool"; exit 77; }
wrong() { echo "$1"; cat said 2>/dev/null; exit 1; }
exec 5> log 6>&1 7< /dev/null 8> other
echo one > in
remrun --no-local sort -o sorted in || wrong "what uses none does not run elsewhere"
[ "$(cat sorted)" = one ] || wrong "its result is not here"
# The script's words do not name it, so nobody knows before it runs.
cat > script <<'S'
cat in > made
n=5
eval "echo logged >&$n"
S
remrun --no-local sh script 2> said; rc=$?
[ $rc = 125 ] || wrong "status $rc of what may not run here and uses one"
grep -q "descriptor 5 (a file, $T/log)" said || wrong "the message does not name it"
[ ! -e made ] || wrong "half of it was committed"
for round in first second; do
    remrun -v sh script 2> said || wrong "$round run here: status $?"
    grep -q 'runs here' said || wrong "$round run: not said where"
done
grep -q 'seen of such a command before' said || wrong "it was not remembered"
[ "$(cat log)" = "$(printf 'logged\nlogged')" ] || wrong "the log has: $(cat log)"
exec 5>&- 6>&- 8>&-
cat > calm <<'S'
exec 5> own; echo x >&5; cat own
S
exec 5> log
[ "$(remrun --no-local sh calm)" = x ] || wrong "a file of its own at that number"
