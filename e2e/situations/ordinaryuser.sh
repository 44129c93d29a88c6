# Source it: U is an ordinary user's folder, in whose folder work we are then; as CMD... runs as that user, who uses the pool of TOKEN (a client's token).
set -u
[ "$(id -u)" = 0 ] && [ -n "${TOKEN:-}" ] || { echo "needs root, and a client token in TOKEN"; exit 77; }
T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77
chmod 755 "$T"; U=$T/user; mkdir -m 755 "$U" "$U/work"; mkdir -m 700 "$U"/{home,run,config,state}; chown -R 65534:65534 "$U"
as() { setpriv --reuid 65534 --regid 65534 --clear-groups env -i PATH="$PATH" HOME="$U/home" USER=nobody GLEANER_RUNTIME_DIR="$U/run" GLEANER_CONFIG_DIR="$U/config" GLEANER_STATE_DIR="$U/state" "$@"; }
trap 'as gleaner stop >/dev/null 2>&1; sleep 0.5; cd /; rm -rf "$T"' EXIT
cd "$U/work"
as gleaner use "$TOKEN" >/dev/null 2>&1 && as remrun --no-local true || { echo "no pool"; exit 77; }
