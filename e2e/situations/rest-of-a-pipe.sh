#!/bin/bash
# What a command leaves of a pipe is there for the next one, as here; much goes through; a command that is called off after it has read runs here.
set -u; T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77; cd "$T"
trap 'cd /; rm -rf "$T"' EXIT
gleaner status --json | grep -q '"connected": *true' || { echo "no pool"; exit 77; }
export GLEANER_PREFER=there; bad=0
there="timeout 60 remrun --no-local"
is() { [ "$2" = "$3" ] || { echo "$1: '$2', not '$3'"; bad=1; }; }
is "first of five" "$(seq 5 | ($there sh -c 'read x; echo "<$x>"'; cat) | xargs)" "<1> 2 3 4 5"
is "one after the other" "$(seq 6 | ($there sh -c 'read x; echo a$x'; $there sh -c 'read x; read y; echo b$y'; $there cat) | xargs)" "a1 b3 4 5 6"
is "answers that come late" "$( (echo y; sleep 1; echo n; sleep 0.5; echo rest) | ($there sh -c 'read a; read b; echo "$a$b"'; cat) | xargs)" "yn rest"
is "head of bytes" "$(seq 100000 | ($there dd bs=1 count=8 status=none; cat) | cksum)" "$(seq 100000 | cksum)"
is "of much" "$(seq 400000 | ($there dd bs=7000 count=200 iflag=fullblock status=none | cksum; cat | cksum))" \
    "$(seq 400000 | (dd bs=7000 count=200 iflag=fullblock status=none | cksum; cat | cksum))"
mkfifo named; seq 5 > named & { $there sh -c 'read x; echo $x'; cat; } < named > said; is "a named pipe" "$(xargs < said)" "1 2 3 4 5"
is "read by none" "$(seq 3 | ($there true; cat) | xargs)" "1 2 3"
is "status and rest" "$(seq 3 | ($there sh -c 'read x; exit 7'; echo $?; cat) | xargs)" "7 2 3"
coproc { $there sh -c 'while read x; do echo $((x * 2)); done'; }
said=; for n in 1 2 3; do echo $n >&"${COPROC[1]}"; read -r twice <&"${COPROC[0]}"; said="$said $twice"; done
is "a coprocess" "$said" " 2 4 6"
head -c 30000000 /dev/urandom > big
is "thirty megabytes" "$($there cat < <(cat big) | cksum)" "$(cksum < big)"
file() { head -n 20000 big.txt > f; exec 5< f; rm f; (${1+$there} sh -c 'read a; echo $a'; cksum) <&5; }
seq 30000 > big.txt; is "a file without a name" "$(file there | xargs)" "$(file | xargs)"
is "a long here-string" "$({ $there sh -c 'read a; echo $a'; cksum; } <<< "$(cat big.txt)" | xargs)" "$({ sh -c 'read a; echo $a'; cksum; } <<< "$(cat big.txt)" | xargs)"
shared() { (for i in $(seq 200); do echo $i; sleep 0.005; done) | (
    (sleep 0.2; $1 dd bs=8 count=60 iflag=fullblock status=none > o1) <&0 & (sleep 0.4; $1 dd bs=8 count=5 iflag=fullblock status=none > o2) <&0 &
    wait; cat > rest; cat o1 o2 rest | tr -d '\n' | fold -w1 | sort | uniq -c | xargs); }
is "shared by two and the next" "$(shared "$there")" "$(shared "")"
two() { seq 2000 | (($1 sh -c 'read x; echo $x; sleep 3; cat' > t1) <&0 & until [ -s t1 ]; do sleep 0.05; done; $1 sh -c 'read y; echo $y' > t2; wait; cat > t3); xargs < t2; cat t1 t2 t3 | sort -n | cksum; rm t1; }
is "read by another while the first waits" "$(two "$there" | xargs)" "2 $(seq 2000 | cksum)"
much() { head -c 3000000 big | (($1 dd bs=100000 count=10 iflag=fullblock status=none > m1) <&0 & ($1 dd bs=100000 count=8 iflag=fullblock status=none > m2) <&0 &
    wait; cat > m3); cat m1 m2 m3 | wc -c; }
is "much, shared" "$(much "$there")" 3000000
ends() { printf 'a\nb\n' | (($1 sh -c 'cat; sleep 6' > e1) <&0 & until [ -s e1 ]; do sleep 0.05; done; timeout 5 $1 cat > e2; echo $?; wait); cat e1 e2 | xargs; rm e1; }
is "at its end, while the first goes on" "$(ends "$there" | xargs)" "0 a b"
lines() { seq 1000 > list; exec 5< list; (until [ -s l1 ]; do sleep 0.05; done; head -c 20 <&5 > /dev/null) & $1 sh -c 'read x; echo $x; sleep 2' <&5 > l1; said=$?; wait; exec 5<&-; rm l1; echo $said; }
is "a file of which another has read meanwhile" "$(lines "$there" 2> said) $(grep -c 'another program has read' said)" "125 1"
exec 5< list; (sleep 0.3; head -c 8 <&5 > /dev/null) & other=$!; $there sleep 1 <&5; wait $other; is "of one that reads none of it" "$(head -n 1 <&5)" "5"; exec 5<&-
is "called off" "$(seq 3 | (timeout 60 remrun sh -c 'read x; mknod dev c 1 3 2>/dev/null; echo $x'; cat) | xargs)" "1 2 3"
exit $bad
