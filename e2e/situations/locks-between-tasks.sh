#!/bin/bash
# Tasks of a job, and of batch jobs, count under a lock: no update is lost, though each would see the files as they were when its job began.
set -u; T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77; trap 'cd /; rm -rf "$T"' EXIT; cd "$T"
command -v flock >/dev/null && command -v python3 >/dev/null || exit 77
gleaner status --json | grep -q '"connected": *true' || { echo "no pool"; exit 77; }
cat > flock.sh <<'X'
exec 9>>f.held; flock 9
n=$(cat c); sleep 0.05; echo $((n+1)) > c
X
cat > range.py <<'X'
import fcntl, time
f = open("c", "r+"); fcntl.lockf(f, fcntl.LOCK_EX)
n = int(f.read()); time.sleep(0.05); f.seek(0); f.write("%d\n" % (n + 1)); f.flush()
X
cat > file.sh <<'X'
while ! mkdir c.lock 2> /dev/null; do sleep 0.01; done; n=$(cat c); sleep 0.05; echo $((n+1)) > c; rmdir c.lock
X
bad=0
wanted() { local n; n=$(cat c); [ "$n" = "$2" ] || { echo "$1: $n of $2"; bad=1; }; }
for how in "sh flock.sh" "python3 range.py" "sh file.sh"; do
    echo 0 > c; timeout 60 gleaner run -j 3 $how {} ::: 1 2 3 4 || bad=1; wanted "run $how" 4
    echo 0 > c; timeout 60 gleaner run -j 3 --no-local $how {} ::: 1 2 3 4 || bad=1; wanted "run --no-local $how" 4
    echo 0 > c; timeout 60 gleaner submit --wait --retries 0 -- $how {} ::: 1 2 3 4 >/dev/null || bad=1; wanted "submit $how" 4
done
# One of those that make one folder has made it, as it would be here.
for how in "run -j 3" "run -j 3 --no-local" "submit --wait --retries 0"; do
    rm -rf made; timeout 60 gleaner $how -- mkdir made {} ::: -m700 -m700 -m700 > said 2>&1 && bad=1
    grep -q "2 of 3 tasks failed\|1 done, 2 failed" said || { echo "$how, a folder: $(cat said)"; bad=1; }
done
# What they count in is not there yet, in a folder that others change all the time; and so is the lock, or it is beside them.
mkdir work; cd work; : > here
for lock in here ../above; do
    script="exec 9>>$lock; flock 9; n=\$(cat ../n 2> /dev/null || echo 0); echo \$((n+1)) > ../n"
    for how in "run -j1" "run -j1 --no-local" "run -j3 --no-local" "submit --wait --retries 0"; do
        rm -f ../n ../above; timeout 60 gleaner $how -- sh -c "$script" {} ::: 1 2 3 > /dev/null || bad=1
        [ "$(cat ../n)" = 3 ] || { echo "$how, above, under $lock: $(cat ../n) of 3"; bad=1; }
    done
done
exit $bad
