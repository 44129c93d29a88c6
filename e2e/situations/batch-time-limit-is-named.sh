#!/bin/bash
set -u; T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77; trap 'cd /; rm -rf "$T"' EXIT; cd "$T"
command -v jq >/dev/null || exit 77
gleaner status --json | jq -e ".connected and (.workers|length>0)" >/dev/null || { echo "no pool"; exit 77; }
one() { gleaner jobs "$1" --json | jq -r "$2"; }
# --time-limit: the reason names the limit, and without --retries one run is one run
s=$(date +%s); A=$(timeout 200 gleaner submit -w --time-limit 5s -- sleep 60 2>/dev/null); t=$(( $(date +%s) - s )); one $A '.tasks[0].why' | tee o; bad=0
grep -q -i 'limit\|5 s' o || { echo "limit not named"; bad=1; }; [ $t -lt 14 ] || { echo "$t s: it ran more than once"; bad=1; }; exit $bad
