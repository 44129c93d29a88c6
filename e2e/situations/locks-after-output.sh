#!/bin/bash
# A command that has said something to a pipe, then asks for a lock, while what it has read changes, or right after: it ends well, says all of it
# once, and sees what was there when it had the lock.
set -u; T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77; cd "$T"
trap 'cd /; rm -rf "$T"' EXIT
command -v flock >/dev/null || exit 77
gleaner status --json | grep -q '"connected": *true' || { echo "no pool"; exit 77; }
export GLEANER_PREFER=there
cat > add.sh <<'X'
read v < n; echo said
sleep ${1:-0}
exec 9>> l; flock 9
read v < n; echo $((v + 1)) > n; echo counted
X
bad=0
for how in "" --no-local; do
  echo 0 > n
  for round in 1 2 3 4 5 6; do
    echo $round > other
    timeout 60 remrun $how sh add.sh 2> err | cat > out
    [ "${PIPESTATUS[0]}" = 0 ] && [ "$(tr '\n' ' ' < out)" = "said counted " ] || { echo "$how, $round: $(cat out err)"; bad=1; }
  done
  [ "$(cat n)" = 6 ] || { echo "$how: counted $(cat n) of 6"; bad=1; }
  echo 10 > n
  (sleep 0.4; echo 20 > n) & timeout 60 remrun $how sh add.sh 1 2> err | cat > out
  [ "${PIPESTATUS[0]}" = 0 ] && [ "$(tr '\n' ' ' < out)" = "said counted " ] || { echo "$how, changed meanwhile: $(cat out err)"; bad=1; }
  wait
  [ "$(cat n)" = 21 ] || { echo "$how, changed meanwhile: $(cat n), not 21"; bad=1; }
  timeout 60 remrun $how sh add.sh > out 2> err < /dev/null && [ "$(cat n)" = 22 ] || { echo "$how, to a file: $(cat n out err)"; bad=1; }
done
# What it says depends on when: nothing is committed then, and it says so.
echo 0 > n; echo 'read v < n; echo $$-$(date +%N); sleep 1; exec 9>> l; flock 9; read v < n; echo $((v + 1)) > n' > when.sh
(sleep 0.4; echo 5 > n) & timeout 60 remrun --no-local sh when.sh 2> err | cat > out; ended=${PIPESTATUS[0]}
[ $ended = 125 ] && grep -q "not what it had been" err || { echo "said something else: $ended $(cat out err)"; bad=1; }
wait; [ "$(cat n)" = 5 ] || { echo "not committed: $(cat n)"; bad=1; }
exit $bad
