#!/bin/bash
# An ordinary user works in a folder that others own and that its group may write, and in a sticky one: what works here must work there.
# Needs root and TOKEN: a token for a client (gleaner token --role client at the hub).
set -u
[ "$(id -u)" = 0 ] && [ -n "${TOKEN:-}" ] || { echo "needs root, and a client token in TOKEN"; exit 77; }
T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77
chmod 755 "$T"; U=$T/user; mkdir -m 755 "$U" "$U/work"; mkdir -m 700 "$U"/{home,run,config,state}; chown -R 65534:65534 "$U"
as() { setpriv --reuid 65534 --regid 65534 --clear-groups env -i PATH="$PATH" HOME="$U/home" USER=nobody GLEANER_RUNTIME_DIR="$U/run" GLEANER_CONFIG_DIR="$U/config" GLEANER_STATE_DIR="$U/state" "$@"; }
trap 'as gleaner stop >/dev/null 2>&1; cd /; rm -rf "$T"' EXIT
cd "$U/work"
as gleaner use "$TOKEN" >/dev/null 2>&1 && as remrun --no-local true || { echo "no pool"; exit 77; }
mkdir shared sticky; chown root:65534 shared; chmod 2775 shared; chown root:root sticky; chmod 1777 sticky; bad=0
try() { as remrun "$@" || { echo "status $?: $*"; bad=1; }; }
try sh -c 'echo x > shared/kept'
try sh -c 'echo x > shared/temporary; rm shared/temporary'
try sh -c 'echo x > sticky/kept'
[ -f shared/kept ] && [ -f sticky/kept ] || { echo "a result is missing"; bad=1; }
echo a > shared/group; chown root:65534 shared/group; chmod 664 shared/group
try sh -c 'echo b >> shared/group'
[ "$(tail -n 1 shared/group)" = b ] || { echo "the line is missing"; bad=1; }
exit $bad
