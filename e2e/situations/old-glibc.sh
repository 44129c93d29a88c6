#!/bin/bash
# The binaries start on the oldest distributions supported upstream when this was written: Debian 11 and Ubuntu 20.04 (glibc 2.31), and RHEL 8 (2.28).
set -u
T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77
trap 'cd "$T"; clean 2>/dev/null; cd /; rm -rf --one-file-system "$T"' EXIT
clean() { :; }
cd "$T"; remrun --no-local true || { echo "no pool"; exit 77; }
bad() { echo "wrong: $*"; B=1; }; B=0
for p in gleaner remrun; do f=$(command -v $p); v=$(python3 - "$f" <<'P'
import re,sys
print('.'.join(map(str,max([tuple(map(int,m.split(b'.'))) for m in re.findall(rb'\0GLIBC_(2\.\d+)(?=\0)',open(sys.argv[1],'rb').read())] or [(0,)]))))
P
); [ "$(printf '%s\n2.31\n' $v | sort -V | tail -1)" = 2.31 ] || bad "$p needs glibc $v"; done
exit $B
