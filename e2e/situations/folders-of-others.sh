#!/bin/bash
# An ordinary user works in a folder that others own and that its group may write, and in a sticky one: what works here must work there.
. "$(dirname "$(readlink -f "$0")")/ordinaryuser.sh"
mkdir shared sticky; chown root:65534 shared; chmod 2775 shared; chown root:root sticky; chmod 1777 sticky; bad=0
try() { as remrun "$@" || { echo "status $?: $*"; bad=1; }; }
try sh -c 'echo x > shared/kept'
try sh -c 'echo x > shared/temporary; rm shared/temporary'
try sh -c 'echo x > sticky/kept'
[ -f shared/kept ] && [ -f sticky/kept ] || { echo "a result is missing"; bad=1; }
echo a > shared/group; chown root:65534 shared/group; chmod 664 shared/group
try sh -c 'echo b >> shared/group'
[ "$(tail -n 1 shared/group)" = b ] || { echo "the line is missing"; bad=1; }
exit $bad
