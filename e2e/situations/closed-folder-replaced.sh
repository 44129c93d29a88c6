#!/bin/bash
# A command puts another folder in the place of one that its user has closed (mode 0): renamed away, or removed, and made again with files in it.
. "$(dirname "$0")/ordinaryuser.sh"
bad=0; mkdir -p moved gone; chown 65534:65534 moved gone; chmod 0 moved gone
as GLEANER_PREFER=there timeout 60 remrun --no-local sh -c 'mv moved away; mkdir -p moved/b; echo x > moved/b/c' || bad=1
as GLEANER_PREFER=there timeout 60 remrun sh -c 'rmdir gone; mkdir gone; echo y > gone/b' || bad=1
[ "$(cat moved/b/c gone/b | tr '\n' ' ')$(stat -c %a away)" = "x y 0" ] || { echo "$(ls -lR . 2>&1)"; bad=1; }
exit $bad
