#!/bin/bash
set -u; T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77; trap 'cd /; rm -rf "$T"' EXIT; cd "$T"
command -v jq >/dev/null || exit 77
gleaner status --json | jq -e ".connected and (.workers|length>0)" >/dev/null || { echo "no pool"; exit 77; }
one() { gleaner jobs "$1" --json | jq -r "$2"; }
# A failed task of --retries tells --assimilate its status (not 125)
A=$(timeout 100 gleaner submit -w --retries 1 --assimilate "echo \$GLEANER_STATUS > $T/st" -- sh -c 'exit 7' 2>/dev/null); sleep 2; cat st; [ "$(cat st)" = 7 ]
