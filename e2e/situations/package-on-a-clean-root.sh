#!/bin/bash
# The Debian packages, made of the programs there are, installed on a root that has a C library, a shell and dpkg, and nothing of ours:
# nothing starts, the programs run, a pool serves, goes on through an upgrade, and nothing is left after a purge.
set -u
here=$(dirname "$(readlink -f "$0")")
if [ -z "${IN_NAMESPACE:-}" ]; then
    for p in dpkg dpkg-deb strip gzip unshare; do command -v $p >/dev/null || { echo "needs $p"; exit 77; }; done
    for X in "$GLEANER_BIN/xtask" "$GLEANER_BIN/../debug/xtask"; do [ -x "$X" ] && break; done
    [ -x "$X" ] || { echo "xtask is not built"; exit 77; }
    T=$(mktemp -d "${TMPDIR:-/tmp}/gleaner-situation.XXXXXX") || exit 77
    CARGO_MANIFEST_DIR=$(readlink -f "$here/../../xtask") "$X" package --programs "$GLEANER_BIN" --to "$T" --quick || { rm -rf "$T"; exit 1; }
    IN_NAMESPACE=1 T=$T unshare --mount --propagation private bash "$0"; rc=$?
    rm -rf --one-file-system "$T"; exit $rc
fi
B=0; bad() { echo "wrong: $*"; B=1; }
R=$T/root; mkdir "$R" && mount -t tmpfs -o mode=755,size=1g tmpfs "$R" || exit 77
mkdir -p "$R"/usr/{bin,sbin,lib,lib64} "$R"/{dev,proc,sys,tmp,root,run,etc,home} "$R"/var/lib/dpkg/{info,updates,triggers}
chmod 1777 "$R/tmp"; chmod 700 "$R/root"
for d in bin sbin lib lib64; do ln -s usr/$d "$R/$d"; done
put() { mkdir -p "$R$(dirname "$1")"; cp -L "$1" "$R$1"; }
for p in sh bash dpkg dpkg-deb dpkg-split dpkg-query tar rm mkdir chown chmod diff ldconfig start-stop-daemon xz cat ls stat grep find seq sleep readlink kill env; do
    f=$(command -v $p) || continue; f=$(readlink -f "$f"); cp -L "$f" "$R/usr/bin/$p"
    for l in $(ldd "$f" 2>/dev/null | grep -o '/[^ ]*'); do put "$l"; done
done
for l in $(ldd "$GLEANER_BIN/gleaner" | grep -o '/[^ ]*'); do put "$l"; done
printf 'root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n' > "$R/etc/passwd"
printf 'root:x:0:\nnogroup:x:65534:\n' > "$R/etc/group"
# What the packages depend on is there as this machine has it.
: > "$R/var/lib/dpkg/available"; : > "$R/var/lib/dpkg/status"
for p in libc6 libgcc-s1 gcc-12-base; do
    dpkg-query -s $p 2>/dev/null | sed '/^Depends:/d;/^Conffiles:/,/^[^ ]/{/^Conffiles:/d;/^ /d}' >> "$R/var/lib/dpkg/status" && echo >> "$R/var/lib/dpkg/status"
    : > "$R/var/lib/dpkg/info/$p.list"; : > "$R/var/lib/dpkg/info/$p:$(dpkg --print-architecture).list"
done
for d in dev proc sys; do mount --rbind /$d "$R/$d"; done
mkdir "$R/packages" && cp "$T"/*.deb "$R/packages/"
version=$(gleaner --version)
# A mere chroot may make no user namespaces.
mkdir "$R/old" && cd "$R" && pivot_root . old && cd / || exit 77
export PATH=/usr/sbin:/usr/bin; hash -r; T=/old$T; R=
inside() { env -i PATH=$PATH HOME=/root USER=root LANG=C.UTF-8 NO_COLOR=1 "$@"; }
processes() { local p; for p in /proc/[0-9]*; do case $(readlink $p/exe) in /usr/bin/gleaner*|/usr/bin/remrun*) echo "${p#/proc/}";; esac; done; }

inside sh -c 'dpkg --install /packages/gleaner_*.deb /packages/libgleaner-dev_*.deb' > "$T/log" 2>&1 || { cat "$T/log"; bad "dpkg --install"; }
[ -z "$(processes)" ] || bad "something runs after the installation: $(processes)"
[ -z "$(ls -A "$R/etc/systemd/system" 2>/dev/null)" ] || bad "a unit was enabled"
[ "$(stat -c '%a %u' "$R/var/lib/gleaner")" = "700 0" ] || bad "/var/lib/gleaner is $(stat -c '%a %u' "$R/var/lib/gleaner")"
for f in usr/bin/remrun usr/share/man/man1/remrun.1.gz usr/share/man/man1/gleaner-bundle.1.gz usr/share/man/man3/gleaner.3.gz \
    usr/share/bash-completion/completions/gleaner usr/share/zsh/vendor-completions/_remrun usr/include/gleaner.h \
    usr/lib/systemd/system/gleaner-worker.service usr/share/doc/gleaner/copyright; do [ -s "$R/$f" ] || bad "no $f"; done
[ -z "$(find "$R/usr/bin/gleaner" "$R/usr/bin/remrun" "$R/usr/share/man" "$R/usr/lib/systemd" \( -perm /022 -o ! -user 0 \))" ] || bad "others may write"
grep -q 'ExecStart=/usr/bin/gleaner worker' "$R/usr/lib/systemd/system/gleaner-worker.service" || bad "the unit starts another program"
[ "$(inside gleaner --version)" = "$version" ] || bad "gleaner --version: $(inside gleaner --version 2>&1)"
inside remrun --version >/dev/null || bad "remrun --version"
inside gleaner doctor --json > "$T/doctor"; grep -q '"findings"' "$T/doctor" || bad "doctor: $(cat "$T/doctor")"

PORT=$((20000 + $$ % 900))
inside gleaner up --listen 127.0.0.1:$PORT --detach > "$T/up" 2>&1 || { cat "$T/up"; bad "gleaner up"; }
mkdir "$R/root/project"
try() { inside bash -c "cd /root/project && remrun --no-local sh -c 'echo \$((6*7)) > $1 && cat $1'"; }
[ "$(try one 2>"$T/why")" = 42 ] && [ "$(cat "$R/root/project/one")" = 42 ] || bad "a command through the pool: $(cat "$T/why")"
inside sh -c 'dpkg --install /packages/gleaner_*.deb' > "$T/log" 2>&1 || { cat "$T/log"; bad "an upgrade while the pool runs"; }
[ "$(try two 2>"$T/why")" = 42 ] || bad "after an upgrade, before a restart: $(cat "$T/why")"
inside gleaner stop > "$T/stop" 2>&1 || { cat "$T/stop"; bad "gleaner stop"; }
inside gleaner up --listen 127.0.0.1:$PORT --detach > "$T/up" 2>&1 || { cat "$T/up"; bad "gleaner up after an upgrade"; }
[ "$(try three 2>"$T/why")" = 42 ] || bad "after a restart: $(cat "$T/why")"
inside gleaner bundle /root/bundle >/dev/null 2>&1 && [ -s "$R/root/bundle" ] || bad "gleaner bundle"
inside gleaner stop >/dev/null 2>&1
for i in $(seq 100); do [ -z "$(processes)" ] && break; sleep 0.1; done
[ -z "$(processes)" ] || { bad "it does not stop: $(processes)"; kill -9 $(processes); }

inside dpkg --remove gleaner > "$T/log" 2>&1 || { cat "$T/log"; bad "dpkg --remove"; }
[ ! -e "$R/usr/bin/gleaner" ] && [ -d "$R/var/lib/gleaner/hub" ] || bad "after removal: the programs go, keys and journal stay"
inside dpkg --purge gleaner libgleaner-dev > "$T/log" 2>&1 || { cat "$T/log"; bad "dpkg --purge"; }
[ ! -e "$R/var/lib/gleaner" ] || bad "a purge leaves the keys"
left=$(find "$R/" -xdev -path "$R/root" -prune -o -path "$R/tmp" -prune -o -name '*gleaner*' -print | grep -v -e /packages -e /var/lib/dpkg); [ -z "$left" ] || bad "left: $left"
exit $B
