#!/bin/bash
# Accounts and groups of a directory have numbers above 65535: commands of such a user see and make files as here, and root gives files to them.
ACCOUNT=1200345:70001 ACCOUNT_GROUPS=70001,70002,1200399
. "$(dirname "$(readlink -f "$0")")/ordinaryuser.sh"
bad=0; there() { as timeout 60 remrun ${how---no-local} "$@"; }
same() {
    local want got; want=$(as sh -c "$1" 2>&1); got=$(there sh -c "$1" 2>&1)
    [ "$got" = "$want" ] || { echo "$1: '$got', not '$want'"; bad=1; }
}
echo mine > mine; mkdir team; echo secret > team/f; chown 1200345:1200399 mine; chgrp -R 70002 team; chmod 2770 team; chmod 660 team/f; chmod 600 mine
same 'id -u; id -g; id -G'
same 'stat -c %u:%g mine team team/f; ls -ln; find . -user 1200345 -o -group 70002 | sort; cat mine team/f; test -O mine && echo own; test -G mine || echo "not my group"'
same 'rm -f f; touch f; stat -c %u:%g f; rm -rf new; install -d -m 2750 -g 70002 new; stat -c %u:%g:%a new; rm -r new'
is() { [ "$(stat -c %u:%g "$1")" = "$2" ] || { echo "$1 is $(stat -c %u:%g "$1")'s, not $2's"; bad=1; }; }
there sh -c 'touch f; echo n > team/n; mkdir team/d; install -d -g 70002 g; chgrp 1200399 f; echo more >> mine' || { echo "status $?"; bad=1; }
is f 1200345:1200399; is team/n 1200345:70002; is team/d 1200345:70002; is g 1200345:70002; is mine 1200345:1200399
how= same 'chgrp 70009 f; chown 70000 f; echo $?'
# Root meets owners, and gives files to others.
cd "$T"; mkdir -m 777 root; cd root
root() { timeout 60 remrun "$@" || { echo "root: $*: status $?"; bad=1; }; }
echo a > of; chown 70000:70001 of; chmod 600 of; echo b > given; echo c > nobodys; chown 70003:70004 nobodys; mkdir in; echo d > in/d; chown -R 70005:70006 in
root --no-local cp -p of copy; is copy 70000:70001
root --no-local chown 70000:70001 given; is given 70000:70001
root chown 1200346:1200347 given; is given 1200346:1200347
# What is met while it runs: it begins again.
root --no-local sh -c 'chown 65534:65534 nobodys; chmod 640 of; cat of > /dev/null; cp -a in again'; is nobodys 65534:65534; is of 70000:70001; is again/d 70005:70006
gleaner explain | grep -q "that it did not know" || { echo "it did not begin again: $(gleaner explain)"; bad=1; }
[ "$(timeout 60 remrun --no-local stat -c %u:%g again/d of given)" = "$(stat -c %u:%g again/d of given)" ] || { echo "root sees others"; bad=1; }
# Commands that set ids themselves, in a script.
root sh -c 'python3 -c "import os; os.setgroups([70011]); os.setgid(1200351); os.setuid(1200350); open(\"theirs\", \"w\")"'; is theirs 1200350:1200351
root --no-local python3 -c 'import ctypes; ctypes.CDLL(None).setfsuid(1200360); open("fs", "w")'; [ "$(stat -c %u fs)" = 1200360 ] || { echo "setfsuid: $(stat -c %u fs)"; bad=1; }
root --no-local chown 1200361:1200362 given; is given 1200361:1200362
mkdir late; echo w > late/f; chown -R 1200370:1200371 late; said=$(timeout 60 script -qec "remrun --no-local sh -c 'echo a; sleep 1; cat late/f'" /dev/null < /dev/null | tr -d '\r' | xargs)
[ "$said" = "a w" ] || { echo "an owner that comes up late, on a terminal: '$said'"; bad=1; }
# More owners, and more groups of one user, than a worker has places for.
mkdir many; for number in $(seq 80001 80250); do echo $number > many/$number; chown $number:$number many/$number; done
root cp -a many again/many; owners() { (cd "$1" && stat -c '%n %u:%g' -- * | sort); }
[ "$(owners many)" = "$(owners again/many)" ] || { echo "owners of many files"; owners again/many | head -n 3; }
root sh -c 'cp -p many/80249 again/late'; is again/late 80249:80249
root tar cf many.tar many; [ "$(tar tvf many.tar --numeric-owner | grep -c 65534)" = 0 ] || { echo "an archive of many owners"; bad=1; }
cd "$U/work"; groups="--groups $(seq -s, 70001 70200)"; as gleaner stop > /dev/null
how= same 'id -G | wc -w'; as gleaner explain | grep -q "have no place on the worker" || { echo "200 groups: $(as gleaner explain | grep -e ^ran -e ^because)"; bad=1; }
exit $bad
