#!/bin/bash
# A subvolume is a file system of its own, and in no list of mounts: no links or renames across its border, nothing beyond it for -xdev.
set -u
T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77
trap 'cd /; umount -l "$T/m" 2>/dev/null; rm -rf "$T"' EXIT
cd "$T"
remrun --no-local true || { echo "no pool"; exit 77; }
[ "$(id -u)" = 0 ] || { echo "needs root"; exit 77; }
truncate -s 200M image; mkfs.btrfs -q image || exit 77
mkdir m; mount -o loop image m || exit 77
cd m; btrfs -q subvolume create sub > /dev/null || exit 77
btrfs subvolume create "sub/in ner" > /dev/null; echo x > sub/x; mkdir d; echo s > s
btrfs subvolume snapshot -r sub kept > /dev/null
rc=0
same() {
    here=$(sh -c "$1" 2>&1); far=$(remrun ${2---no-local} sh -c "$1" 2>&1)
    [ "$here" = "$far" ] || { printf '%s\n  here: %s\n  far: %s\n' "$1" "$here" "$far"; rc=1; }
}
same 'find . -xdev | sort'
same 'ln sub/x y; echo $?; ls'
same 'stat -c %d . sub "sub/in ner" d | uniq | wc -l'
same 'perl -e "rename q(s), q(sub/s) or print qq(\$!\n)"; ls sub'
same 'echo no > kept/x; ls kept'
same 'lsattr s d' ''
(cd sub && same 'ln ../s t; ln "in ner/q" t; echo $?; du -x . | wc -l')
remrun sh -c 'mv sub/x "sub/in ner/x"; echo more >> "sub/in ner/x"'
[ "$(cat "sub/in ner/x")" = "x
more" ] || { echo "moved wrongly"; rc=1; }
remrun rm -rf sub && [ ! -e sub ] || { echo "not removed"; rc=1; }
exit $rc
