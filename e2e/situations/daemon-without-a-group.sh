#!/bin/bash
# The client daemon was started before its user came into a group (usermod -aG and a new login, newgrp): later callers have the group, and those
# without it have not.
. "$(dirname "$0")/ordinaryuser.sh"
bad=0; in_group() { setpriv --reuid 65534 --regid "$1" --groups 65534,2000 env -i PATH="$PATH" HOME="$U/home" USER=nobody GLEANER_RUNTIME_DIR="$U/run" GLEANER_CONFIG_DIR="$U/config" GLEANER_STATE_DIR="$U/state" GLEANER_PREFER=there timeout 60 "${@:2}"; }
mkdir team; echo secret > team/f; chgrp -R 2000 team; chmod 2770 team; chmod 660 team/f; touch mine; chown 65534:65534 mine
[ "$(in_group 65534 cat team/f)" = secret ] || exit 77
for how in "" --no-local; do
    said=$(in_group 65534 remrun $how cat team/f 2>&1); [ "$said" = secret ] || { echo "remrun $how cat: $said"; bad=1; }
done
in_group 65534 gleaner explain | grep -q '^ran *remote' || { echo "it ran here: $(in_group 65534 gleaner explain | grep ^ran)"; bad=1; }
in_group 65534 remrun sh -c 'echo new > team/n' && [ "$(stat -c %g team/n)" = 2000 ] || { echo "what is made in the group's folder"; bad=1; }
in_group 65534 remrun chgrp 2000 mine; [ "$(stat -c %g mine)" = 2000 ] || { echo "chgrp: $(stat -c %g mine)"; bad=1; }
in_group 2000 remrun sh -c 'echo > theirs'; [ "$(stat -c %g theirs)" = 2000 ] || { echo "newgrp: $(stat -c %g theirs)"; bad=1; }
as GLEANER_PREFER=there remrun cat team/f >/dev/null 2>&1 && { echo "who has not the group reads its file"; bad=1; }
# While it has others to serve: what is wanted then runs with its caller's rights, here.
as gleaner stop > /dev/null; as GLEANER_PREFER=there remrun sleep 4 & sleep 1.5
said=$(in_group 65534 remrun cat team/f 2>&1); [ "$said" = secret ] || { echo "while it is busy: $said"; bad=1; }
said=$(in_group 65534 remrun --no-local cat team/f 2>&1); [ "$said" = secret ] && { echo "--no-local, while it is busy: it must not run here"; bad=1; }
case $said in *"without the group 2000"*) ;; *) echo "--no-local, while it is busy: $said"; bad=1 ;; esac
wait; exit $bad
