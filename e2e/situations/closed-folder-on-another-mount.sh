#!/bin/bash
# A file in a closed folder of an ordinary user's own, on a mount of its own: there is no other folder of that mount to put it together in.
. "$(dirname "$0")/ordinaryuser.sh"
mkdir "$T/other" m; mount --bind "$T/other" m || exit 77
trap 'umount -l "$U/work/m"; as gleaner stop >/dev/null 2>&1; sleep 0.5; cd /; rm -rf "$T"' EXIT
echo old > m/f; chown -R 65534:65534 m; chmod 555 m
as remrun --no-local sh -c 'echo new > m/f' && [ "$(cat m/f)" = new ] && [ "$(stat -c %a m)" = 555 ] && [ "$(ls -A m)" = f ]
