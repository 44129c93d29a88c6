#!/bin/bash
# A user's command in a folder that this user may not enter (as root in its home, who becomes another user there): it runs, as it does without remrun.
. "$(dirname "$0")/ordinaryuser.sh"
mkdir -m 700 "$T/closed"; bad=0
try() { said=$(as GLEANER_PREFER=there timeout 60 remrun echo hi 2>&1); [ "$said" = hi ] || { echo "$1: $said"; bad=1; }; }
cd "$T/closed"; try "another's folder"
mkdir "$T/closed/below"; chmod 777 "$T/closed/below"; cd "$T/closed/below"; try "below another's folder"
mkdir -m 000 "$U/work/own"; chown 65534:65534 "$U/work/own"; cd "$U/work/own"; try "an own folder of mode 0"
exit $bad
