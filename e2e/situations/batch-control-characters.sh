#!/bin/bash
set -u; T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77; trap 'cd /; rm -rf "$T"' EXIT; cd "$T"
command -v jq >/dev/null || exit 77
gleaner status --json | jq -e ".connected and (.workers|length>0)" >/dev/null || { echo "no pool"; exit 77; }
one() { gleaner jobs "$1" --json | jq -r "$2"; }
# Control characters in a job name must not reach the terminal (also of the hub owner: jobs --everyone)
J=$(gleaner submit --hold --name "$(printf 'a\033[31mb\r\nc')" -- true); gleaner jobs > o; gleaner jobs $J >> o; gleaner cancel $J >/dev/null
! grep -q $'\033\|\r' o || { cat -v o | head -4; exit 1; }
