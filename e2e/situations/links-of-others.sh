#!/bin/bash
# A symbolic link of another user, in a folder of theirs: anybody may set its times to the present. A file of theirs: where the kernel
# lets anybody give it another name, a command elsewhere may.
. "$(dirname "$(readlink -f "$0")")/ordinaryuser.sh"
mkdir theirs; ln -s x theirs/link; touch -hd @1 theirs/link; chmod 711 theirs
as touch -h theirs/link && [ "$(stat -c %Y theirs/link)" != 1 ] || exit 77
touch -hd @1 theirs/link
as remrun --no-local touch -h theirs/link; rc=$?
echo "status $rc, changed $(stat -c %y theirs/link)"
[ $rc = 0 ] && [ "$(stat -c %Y theirs/link)" != 1 ] || exit 1

echo bytes > theirs/file; chmod 600 theirs/file
as ln theirs/file here && rm here || exit 0
as remrun --no-local ln theirs/file there; rc=$?
echo "status $rc, $(stat -c %h theirs/file) names"
[ $rc = 0 ] && [ there -ef theirs/file ]
