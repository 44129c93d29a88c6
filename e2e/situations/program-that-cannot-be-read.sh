#!/bin/bash
# A program that the user may execute, and not read.
. "$(dirname "$(readlink -f "$0")")/ordinaryuser.sh"
cp /bin/echo only-x; chown root:root only-x; chmod 711 only-x
[ "$(as ./only-x hello)" = hello ] || exit 77
said=$(as remrun ./only-x hello); rc=$?
echo "status $rc"
[ $rc = 0 ] && [ "$said" = hello ]
