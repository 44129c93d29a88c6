#!/bin/bash
# Scripts, makefiles and programs that signal or look for a process of this machine by its number or name: as here, and no lock of a process
# that lives is taken for stale. Processes of their own are their own.
set -u; T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77; cd "$T"
trap 'kill $p $q 2>/dev/null; cd /; rm -rf "$T"' EXIT
command -v python3 >/dev/null && command -v make >/dev/null || exit 77
gleaner status --json | grep -q '"connected": *true' || { echo "no pool"; exit 77; }
export GLEANER_PREFER=there; bad=0
cp "$(command -v sleep)" server; ./server 300 & p=$!; echo $p > d.pid; setsid sleep 300 & q=$!; echo $q > group.pid
echo 'if kill -0 $(cat d.pid) 2>/dev/null; then echo running; else echo stale; fi' > number.sh
echo 'if kill -s 0 -- -$(cat group.pid) 2>/dev/null; then echo running; else echo stale; fi' > group.sh
echo 'if [ -d /proc/$(cat d.pid) ]; then echo running; else echo stale; fi' > proc.sh
echo 'if pgrep -x server >/dev/null; then echo running; else echo stale; fi' > name.sh
echo 'if ps -p $(cat d.pid) >/dev/null; then echo running; else echo stale; fi' > ps.sh
printf 'all:\n\t@kill -0 `cat d.pid` 2>/dev/null && echo running || echo stale\n' > Makefile
echo 'import os; os.kill(int(open("d.pid").read()), 0); print("running")' > number.py
for how in "sh number.sh" "sh group.sh" "sh proc.sh" "sh name.sh" "sh ps.sh" "make -s" "python3 number.py"; do
    said=$(timeout 60 remrun $how 2>&1); [ "$said" = running ] || { echo "$how: '$said'; $(gleaner explain | grep ^ran)"; bad=1; }
done
ln -s here.$p .lock; timeout 60 remrun bash -c 't=$(readlink .lock); kill -0 ${t##*.} 2>/dev/null || rm .lock'
[ -L .lock ] || { echo "the lock of a process that lives was removed"; bad=1; }
timeout 60 remrun sh -c 'kill $(cat d.pid)'; sleep 0.3; kill -0 $p 2>/dev/null && { echo "it was not signalled"; bad=1; }
# Who began it is signalled, and nobody else.
said=$(sh -c 'trap "echo heard; exit" USR1; remrun sh -c "kill -USR1 \$PPID"; sleep 1; echo not')
[ "$said" = heard ] || { echo "the caller was not signalled: $said"; bad=1; }
# Its own processes, also those that have ended; and numbers that nobody has.
cat > own.sh <<'X'
sleep 60 & kill $!; wait $!; echo $?
true & w=$!; wait $w; kill -0 $w 2>/dev/null || echo ended
kill -0 4194300 2>/dev/null || echo nobody
kill -0 $$ && echo self
X
said=$(timeout 60 remrun --no-local sh own.sh 2>/dev/null | tr '\n' ' '); [ "$said" = "143 ended nobody self " ] || { echo "its own: $said"; bad=1; }
exit $bad
