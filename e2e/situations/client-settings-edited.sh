#!/bin/bash
# client.toml is edited while the client daemon runs: the next command goes by it, and neither daemon nor hub starts anew. A wrong file is told and changes nothing.
. "$(dirname "$(readlink -f "$0")")/casepool.sh"
pool || exit 77
F=$T/client/config/client.toml; bad=0
daemon() { for p in $(grep -lsz "GLEANER_STATE_DIR=$T/client/state" /proc/[0-9]*/environ | cut -d/ -f3); do tr '\0' ' ' </proc/$p/cmdline | grep -q '^gleaner daemon' && echo $p; done; }
before=$(daemon); [ -n "$before" ] || { echo "no daemon"; exit 77; }
cp "$F" $T/good
echo 'link_wait_s = "soon"' >> "$F"
said=$(c remrun echo ran 2>&1 | tr '\n' ' ')
case $said in *client.toml*stay*ran*) ;; *) echo "a wrong file: $said"; bad=1;; esac
[ "$(c remrun --no-local echo ran 2>&1)" = ran ] || { echo "the wrong file counts, or is told twice"; bad=1; }
c gleaner status | grep -q 'client.toml' || { echo "status does not tell"; bad=1; }
cp $T/good "$F"; echo 'prefer = "there"' >> "$F"
[ "$(c remrun --no-local echo ran 2>&1)" = ran ] || { echo "the good file does not count"; bad=1; }
c gleaner status | grep -q 'client.toml' && { echo "status tells of what is mended"; bad=1; }
[ "$(daemon)" = "$before" ] || { echo "the daemon started anew: $before, then $(daemon)"; bad=1; }
# Another hub, which nobody has: the daemon goes, hub and worker stay.
sed 's/^hub = .*/hub = ["127.0.0.1:1"]/' $T/good > "$F"
c timeout 60 remrun true || { echo "it does not run here"; bad=1; }
[ "$(daemon)" != "$before" ] || { echo "another hub is not taken up"; bad=1; }
kill -0 $HUB $W || { echo "hub or worker are gone"; bad=1; }
cp $T/good "$F"; served 20 || bad=1
exit $bad
