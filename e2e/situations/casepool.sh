# Source it: T is a fresh folder; part NAME CMD... runs with that part's environment; pool starts hub, worker w0 and client on loopback.
set -u
export PATH=${GLEANER_BIN:?folder with gleaner and remrun}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77
PORT=${PORT:-$((19000 + $$ % 900))}; PIDS=
part() { local p=$T/$1; shift; mkdir -p $p/home $p/run $p/config $p/state; chmod 700 $p/*; ${EXEC:-} env -i PATH="$PATH" CASE=$T LANG=C.UTF-8 USER=root HOME=$p/home XDG_RUNTIME_DIR=$p/run GLEANER_RUNTIME_DIR=$p/run GLEANER_CONFIG_DIR=$p/config GLEANER_STATE_DIR=$p/state NO_COLOR=1 "$@"; }
c() { part client "$@"; }
token() { local t; for _ in $(seq 20); do t=$(part hub gleaner token --role $1 2>/dev/null | grep -o 'gleaner1-[0-9a-f]*' | head -1); [ -n "$t" ] && { echo $t; return; }; sleep 0.3; done; }
hub() { EXEC=exec part hub sh -c "${HUBPRE:-}"' exec gleaner hub --listen 127.0.0.1:'$PORT >>$T/hub.log 2>&1 & HUB=$!; PIDS="$PIDS $!"; for i in $(seq 100); do ss -lun | grep -q "127.0.0.1:$PORT " && return 0; kill -0 $HUB 2>/dev/null || return 1; sleep 0.1; done; }
worker() { local w=$1 a=worker; [ -f $T/$w/config/node.toml ] || a="join $(token worker)"; EXEC=exec part $w sh -c "${WPRE:-}"' exec gleaner '"$a --name $w --cpus 2" >>$T/$w.log 2>&1 & W=$!; PIDS="$PIDS $!"; }
hubpid() { grep -lsz "GLEANER_STATE_DIR=$T/hub/state" /proc/[0-9]*/environ | cut -d/ -f3 | while read p; do tr '\0' ' ' </proc/$p/cmdline | grep -q '^gleaner hub' && echo $p; done; }
pool() { hub && worker w0 && c gleaner use $(token client) >/dev/null && served; }
served() { for i in $(seq ${1:-40}); do [ "$(c timeout 40 remrun --no-local echo served 2>$T/why)" = served ] && return 0; sleep 0.5; done; echo "pool does not serve: $(tail -1 $T/why)"; return 1; }
done_() { local rc=$?; c timeout 30 gleaner stop >/dev/null 2>&1; part hub timeout 30 gleaner stop >/dev/null 2>&1; for p in $(grep -lsz "^CASE=$T\$" /proc/[0-9]*/environ | cut -d/ -f3); do kill $p 2>/dev/null; done; sleep 1; for p in $(grep -lsz "^CASE=$T\$" /proc/[0-9]*/environ | cut -d/ -f3); do kill -9 $p 2>/dev/null; done; for m in $(grep -o "$T/[^ ]*" /proc/mounts | sort -r); do umount -l $m 2>/dev/null; done; cd /; rm -rf --one-file-system $T; exit $rc; }
trap done_ EXIT
