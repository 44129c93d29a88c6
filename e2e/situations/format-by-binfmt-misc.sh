#!/bin/bash
# Formats registered with binfmt_misc here (qemu-user, Wine, jar) and not on the worker: the file is run as a shell script there. Needs Linux 6.7.
set -u
T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77
trap 'cd "$T"; clean 2>/dev/null; cd /; rm -rf --one-file-system "$T"' EXIT
clean() { :; }
cd "$T"; remrun --no-local true || { echo "no pool"; exit 77; }
bad() { echo "wrong: $*"; B=1; }; B=0
TOKEN=${TOKEN:-$(gleaner token --role client 2>/dev/null | tr ' ' '\n' | grep gleaner1- | tail -1)}; [ "$TOKEN" ] || { echo "no token"; exit 77; }
mkdir -p c/{home,run,state,config} w; chmod 700 c/*
export HOME=$T/c/home XDG_RUNTIME_DIR=$T/c/run GLEANER_RUNTIME_DIR=$T/c/run GLEANER_STATE_DIR=$T/c/state GLEANER_CONFIG_DIR=$T/c/config
printf '#!/bin/sh\necho ran $2; echo made > made; exit 5\n' > interp; chmod +x interp; printf '#!/bin/sh\nexec /bin/sh -c "echo ran; echo made > made; exit 5"\n' > interp
printf '\177FOO echo\ntouch oops\n' > w/p.foo; chmod +x w/p.foo
cat > in.sh <<'E'
mount -t binfmt_misc b /proc/sys/fs/binfmt_misc || exit 77
printf '%s' ":glfoo:M::\\x7fFOO::$2/interp:" > /proc/sys/fs/binfmt_misc/register || exit 77
cd w; [ "$(./p.foo)" = ran ] || exit 77; rm -f made
gleaner use $1 >/dev/null 2>&1 || exit 77
B=0; o=$(remrun ./p.foo 2>/dev/null); rc=$?; [ $rc = 5 ] && [ "$o" = ran ] && [ -e made ] || { echo "wrong: status $rc, said '$o', not 5 and ran"; B=1; }
[ -e oops ] && { echo "wrong: the data was run as a shell script"; B=1; }
rm -f made oops; o=$(remrun sh -c './p.foo; echo $?' 2>/dev/null); [ "$o" = "ran
5" ] || { echo "wrong: in a script: '$o'"; B=1; }
gleaner stop >/dev/null 2>&1; exit $B
E
unshare -Ur -m -p -f --mount-proc bash in.sh "$TOKEN" "$T"
