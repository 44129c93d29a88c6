# For the checks of this folder, which run one after the other on a machine that systemd has started. Commands are an ordinary user's:
# the tasks of the worker's own account would be no guests.
set -u
export HOME=/root
WHO=visitor PLACE=/home/visitor/project
B=0; bad() { echo "wrong: $*"; B=1; }
# Emulated, everything takes long: the bound is only there so that each wait has an end.
eventually() { local end=$((SECONDS + 240)); until "$@" >/dev/null 2>&1; do [ $SECONDS -lt $end ] || return 1; sleep 0.5; done; }
main_pid() { local pid; pid=$(systemctl show --property MainPID --value "$1"); [ "$pid" -gt 0 ] && echo "$pid"; }
as_user() { (cd $PLACE && exec runuser -u $WHO -- env HOME=/home/$WHO XDG_RUNTIME_DIR=/run/$WHO "$@"); }
serves() { as_user timeout 60 remrun --no-local true; }
# A process of this name in a group of guests.
guest() { local p; for p in $(pgrep -x "$1"); do grep -q '/gleaner-' "/proc/$p/cgroup" && echo "$p" && return; done; return 1; }
logs() { journalctl --no-pager --lines 15 --output cat --unit "$1"; }
