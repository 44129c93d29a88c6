#!/bin/bash
# A 32-bit (i386) program is killed by SIGSYS on the worker; it is not run here either. No compiler needed: 84 + 12 bytes, exit(9).
set -u
T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77
trap 'cd "$T"; clean 2>/dev/null; cd /; rm -rf --one-file-system "$T"' EXIT
clean() { :; }
cd "$T"; remrun --no-local true || { echo "no pool"; exit 77; }
bad() { echo "wrong: $*"; B=1; }; B=0
python3 - <<'P' || exit 77
import struct
code=bytes.fromhex('b801000000bb09000000cd80')
eh=b'\x7fELF'+bytes([1,1,1,0])+b'\0'*8+struct.pack('<HHIIIIIHHHHHH',2,3,1,0x8048054,52,0,0,52,32,1,40,0,0)
ph=struct.pack('<IIIIIIII',1,0,0x8048000,0x8048000,84+len(code),84+len(code),5,0x1000)
open('p32','wb').write(eh+ph+code)
P
chmod +x p32; ./p32; [ $? = 9 ] || { echo "no 32-bit programs here"; exit 77; }
remrun ./p32; rc=$?; [ $rc = 9 ] || bad "remrun ./p32: status $rc, not 9"
o=$(remrun sh -c './p32; echo $?' 2>/dev/null); [ "$o" = 9 ] || bad "in a script: $o, not 9"
exit $B
