#!/bin/bash
# A program that the user may execute, and not read.
# Needs root and TOKEN: a token for a client (gleaner token --role client at the hub).
set -u
[ "$(id -u)" = 0 ] && [ -n "${TOKEN:-}" ] || { echo "needs root, and a client token in TOKEN"; exit 77; }
T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77
chmod 755 "$T"; U=$T/user; mkdir -m 755 "$U" "$U/work"; mkdir -m 700 "$U"/{home,run,config,state}; chown -R 65534:65534 "$U"
as() { setpriv --reuid 65534 --regid 65534 --clear-groups env -i PATH="$PATH" HOME="$U/home" USER=nobody GLEANER_RUNTIME_DIR="$U/run" GLEANER_CONFIG_DIR="$U/config" GLEANER_STATE_DIR="$U/state" "$@"; }
trap 'as gleaner stop >/dev/null 2>&1; cd /; rm -rf "$T"' EXIT
cd "$U/work"
as gleaner use "$TOKEN" >/dev/null 2>&1 && as remrun --no-local true || { echo "no pool"; exit 77; }
cp /bin/echo only-x; chown root:root only-x; chmod 711 only-x
[ "$(as ./only-x hello)" = hello ] || exit 77
said=$(as remrun ./only-x hello); rc=$?
echo "status $rc"
[ $rc = 0 ] && [ "$said" = hello ]
