#!/bin/bash
# Tasks of a job whose programs do not wait for a lock that another has: they are told, or run here and are told. Nothing hangs.
set -u; T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77; cd "$T"
holder=
trap 'cd /; [ -z "$holder" ] || kill $holder; rm -rf "$T"' EXIT
command -v flock >/dev/null && command -v python3 >/dev/null || exit 77
gleaner status --json | grep -q '"connected": *true' || { echo "no pool"; exit 77; }
mkdir -p left.lock old/x.lock
python3 -c 'import fcntl, time; f = open("held", "w"); fcntl.flock(f, fcntl.LOCK_EX); print("has it", flush=True); time.sleep(100)' > ready & holder=$!
until [ -s ready ]; do sleep 0.05; done
bad=0
busy() { [ "$(sort -u out)" = "$2" ] || { echo "$1: $(cat out)"; bad=1; }; }
timeout 30 gleaner run -j 2 sh -c 'mkdir left.lock 2> /dev/null || echo busy' {} ::: 1 2 > out || bad=1; busy "a folder that was left behind" busy
timeout 30 gleaner run -j 2 sh -c 'mkdir -p old/x.lock && echo there' {} ::: 1 2 > out || bad=1; busy "a folder that is there" there
timeout 30 gleaner run -j 2 sh -c 'flock -n held true || echo busy' {} ::: 1 2 > out || bad=1; busy "flock -n" busy
ln -s nowhere link.new; echo there > made.new
for case in 'mkdir -p old/x.lock && echo there' 'mkdir left.lock || echo there' 'set -C; : > made.new || echo there' 'ln -sT x link.new || echo there'; do
  rm -f out
  timeout 100 gleaner submit --wait --retries 0 -- bash -c "{ $case; } > out 2> err" > said 2>&1 || { echo "a batch task: $(cat said)"; bad=1; }
  busy "a batch task, $case" there
done
# Who has said something and tries again and again to make what is there is told each time; and has it when it is taken away.
echo 'echo said; for i in 1 2 3 4 5; do mkdir old 2> /dev/null || echo there; done; mkdir mine && rmdir mine' > again.sh
for how in "" --no-local; do
  GLEANER_PREFER=there timeout 60 remrun $how sh again.sh 2> err | cat > out; [ ${PIPESTATUS[0]} = 0 ] || { echo "again, $how: $(cat err)"; bad=1; }
  [ "$(tr '\n' ' ' < out)" = "said there there there there there " ] || { echo "again, $how: $(cat out err)"; bad=1; }
done
echo 'echo said; until mkdir left.lock 2> /dev/null; do sleep 0.1; done; echo has; rmdir left.lock' > until.sh
for how in "" --no-local; do
  mkdir -p left.lock; (sleep 1; rmdir left.lock) & GLEANER_PREFER=there timeout 60 remrun $how sh until.sh 2> err | cat > out
  [ "$(tr '\n' ' ' < out)" = "said has " ] || { echo "until, $how: $(cat out err)"; bad=1; }
done
exit $bad
