#!/bin/bash
set -u; T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77; trap 'cd /; rm -rf "$T"' EXIT; cd "$T"
command -v jq >/dev/null || exit 77
gleaner status --json | jq -e ".connected and (.workers|length>0)" >/dev/null || { echo "no pool"; exit 77; }
one() { gleaner jobs "$1" --json | jq -r "$2"; }
# A held job of one account that fills the hub (tasks_max 65536) must not keep everybody else out
seq 1 70000 | sed 's/^/echo /' > c; timeout 60 gleaner submit --hold --key fill$$ c > j 2>/dev/null; J=$(cat j); sleep 1
timeout 30 remrun --no-local true; rc=$?; gleaner cancel "$J" >/dev/null; [ $rc = 0 ] || { echo "remrun --no-local: status $rc while a held job fills the hub"; exit 1; }
