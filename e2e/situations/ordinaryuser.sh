# Source it: U is an ordinary user's folder, in whose folder work we are then; as CMD... runs as that user, who uses the pool of TOKEN (a client's token).
# ACCOUNT names another user and group than nobody's, as user:group, and ACCOUNT_GROUPS the groups.
set -u
ACCOUNT=${ACCOUNT:-65534:65534}; [ -n "${ACCOUNT_GROUPS:-}" ] && groups="--groups $ACCOUNT_GROUPS" || groups=--clear-groups
[ "$(id -u)" = 0 ] && [ -n "${TOKEN:-}" ] || { echo "needs root, and a client token in TOKEN"; exit 77; }
T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77
chmod 755 "$T"; U=$T/user; mkdir -m 755 "$U" "$U/work"; mkdir -m 700 "$U"/{home,run,config,state}; chown -R $ACCOUNT "$U"
as() { setpriv --reuid ${ACCOUNT%:*} --regid ${ACCOUNT#*:} $groups env -i PATH="$PATH" HOME="$U/home" USER=nobody GLEANER_RUNTIME_DIR="$U/run" GLEANER_CONFIG_DIR="$U/config" GLEANER_STATE_DIR="$U/state" "$@"; }
trap 'as gleaner stop >/dev/null 2>&1; sleep 0.5; cd /; rm -rf "$T"' EXIT
cd "$U/work"
as gleaner use "$TOKEN" >/dev/null 2>&1 && as remrun --no-local true || { echo "no pool"; exit 77; }
