#!/bin/bash
# A command that has said something takes two locks one after the other, while other commands change their own files all the time: it
# begins again once for each lock at most, with both from its start then, and ends well.
set -u; export LOOK=; T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77; cd "$T"
trap 'kill $busy 2>/dev/null; cd /; rm -rf "$T"' EXIT
command -v flock >/dev/null || exit 77
gleaner status --json | grep -q '"connected": *true' || { echo "no pool"; exit 77; }
export GLEANER_PREFER=there
mkdir own other; echo 0 > other/n; cd own
(while :; do echo $RANDOM > ../other/n; : > ../other/m; rm -f ../other/m; sleep 0.01; done) & busy=$!
cat > files.sh <<'X'
[ -z "$LOOK" ] || { ls $LOOK; exec cat $LOOK/n; }
echo said
exec 8>> a; flock 8; read v < n; echo $((v + 1)) > n; flock -u 8; sleep 0.05
exec 9>> b; flock 9; read v < n; echo $((v + 1)) > n; flock -u 9; sleep 0.05
echo counted
X
cat > folders.sh <<'X'
[ -z "$LOOK" ] || { ls $LOOK; exec cat $LOOK/n; }
echo said
until mkdir a.lock; do sleep 0.05; done; read v < n; echo $((v + 1)) > n; sleep 0.05; rmdir a.lock
until mkdir b.lock; do sleep 0.05; done; read v < n; echo $((v + 1)) > n; sleep 0.05; rmdir b.lock
echo counted
X
bad=0
for script in files.sh folders.sh; do
  # What the others change is in the view that commands of this script share.
  LOOK=../other remrun --no-local sh $script > /dev/null || bad=1
  for how in "remrun --no-local" "remrun" "gleaner submit --wait --retries 0 --"; do
    echo 0 > n; rm -f a b
    timeout 60 $how sh $script 2> ../err | cat > ../out; ended=${PIPESTATUS[0]}
    [ $ended = 0 ] && [ "$(cat n)" = 2 ] || { echo "$how, $script: $ended, counted $(cat n) of 2: $(cat ../out ../err)"; bad=1; }
    case $how in remrun*) [ "$(tr '\n' ' ' < ../out)" = "said counted " ] || { echo "$how, $script: $(cat ../out)"; bad=1; } ;; esac
  done
  times=$(gleaner explain | grep -c 'command started'); [ "$times" -le 4 ] || { echo "$script: began $times times"; bad=1; }
done
exit $bad
