#!/bin/bash
set -u; T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77; trap 'cd /; rm -rf "$T"' EXIT; cd "$T"
command -v jq >/dev/null || exit 77
gleaner status --json | jq -e ".connected and (.workers|length>0)" >/dev/null || { echo "no pool"; exit 77; }
one() { gleaner jobs "$1" --json | jq -r "$2"; }
# release says that the hub cannot be reached only if it cannot
seq 1 20000 | sed "s|^|true |" > c; J=$(gleaner submit --hold c); gleaner release $J > o 2>&1; gleaner cancel $J >/dev/null; ! grep 'can be reached' o
