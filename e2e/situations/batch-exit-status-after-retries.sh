#!/bin/bash
set -u; T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77; trap 'cd /; rm -rf "$T"' EXIT; cd "$T"
command -v jq >/dev/null || exit 77
gleaner status --json | jq -e ".connected and (.workers|length>0)" >/dev/null || { echo "no pool"; exit 77; }
one() { gleaner jobs "$1" --json | jq -r "$2"; }
# After --retries 1 the last exit status must be told (it is "failed: it failed too often")
A=$(timeout 100 gleaner submit -w --retries 1 -- sh -c 'exit 7' 2>/dev/null); one $A '.tasks[0]|.status+" "+(.why//"")' | tee o; grep -q 'exit 7' o
