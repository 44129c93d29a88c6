#!/bin/bash
# What a command leaves of a socket that is its standard input, as programs have one that ssh or a service manager starts, is there for the next one.
set -u; T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77; cd "$T"
trap 'cd /; rm -rf "$T"' EXIT
command -v python3 > /dev/null || { echo "no python3"; exit 77; }
gleaner status --json | grep -q '"connected": *true' || { echo "no pool"; exit 77; }
export GLEANER_PREFER=there; bad=0
there="timeout 60 remrun --no-local"
# Runs its script with a socket as standard input, into which the words go, each after a while.
fed() { python3 - "$@" <<'P'
import socket, subprocess, sys, time
here, there = socket.socketpair()
child = subprocess.Popen(["bash", "-c", sys.argv[1]], stdin=there)
there.close()
for word in sys.argv[2:]:
    here.sendall(word.encode().decode("unicode_escape").encode())
    time.sleep(0.1)
here.shutdown(socket.SHUT_WR)
sys.exit(child.wait())
P
}
is() { [ "$2" = "$3" ] || { echo "$1: '$2', not '$3'"; bad=1; }; }
is "first of five" "$(fed "$there sh -c 'read x; echo \"<\$x>\"'; cat" '1\n2\n3\n4\n5\n' | xargs)" "<1> 2 3 4 5"
is "one after the other" "$(fed "$there sh -c 'read x; echo a\$x'; $there sh -c 'read x; read y; echo b\$y'; $there cat" '1\n2\n' '3\n4\n' '5\n6\n' | xargs)" "a1 b3 4 5 6"
is "read by none" "$(fed "$there true; cat" 'a\n' 'b\n' | xargs)" "a b"
is "called off" "$(fed "timeout 60 remrun sh -c 'read x; mknod dev c 1 3 2>/dev/null; echo \$x'; cat" '1\n2\n' '3\n' | xargs)" "1 2 3"
seq 400000 > big
is "much" "$(python3 -c '
import socket, subprocess, sys
here, there = socket.socketpair()
child = subprocess.Popen(["bash", "-c", sys.argv[1]], stdin=there)
there.close()
here.sendall(open("big", "rb").read())
here.shutdown(socket.SHUT_WR)
sys.exit(child.wait())' "$there dd bs=7000 count=200 iflag=fullblock status=none | cksum; cat | cksum" | xargs)" \
    "$( (dd bs=7000 count=200 iflag=fullblock status=none | cksum; cat | cksum) < big | xargs)"
exit $bad
