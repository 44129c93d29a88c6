#!/bin/bash
# A set-user-id or set-group-id program within a script, below make or xargs: it has its rights, and the command runs here. So does what root writes to
# such a file, which keeps its bits.
. "$(dirname "$0")/ordinaryuser.sh"
W=$PWD; cp /usr/bin/id sid; chown 0:0 sid; chmod 4755 sid; cp /usr/bin/id gid; chown 0:0 gid; chmod 2755 gid
printf 'all:\n\t@./sid -u\n' > Makefile; printf '#!/bin/sh\necho script\n' > script; chmod 6755 script
[ "$(as ./sid -u)" = 0 ] || { echo "set-user-id does not work here"; exit 77; }
bad=0; try() { local want=$1 said; shift; said=$(as GLEANER_PREFER=there timeout 60 remrun "$@" 2>&1); [ "$said" = "$want" ] || { echo "$*: '$said', not '$want'; $(as gleaner explain | grep ^ran)"; bad=1; }; }
try 0 sh -c './sid -u'; try 0 sh -c './gid -g'; try 0 make -s; try 0 sh -c 'echo -u | xargs ./sid'; try script sh -c './script'
said=$(as GLEANER_PREFER=there remrun --no-local sh -c 'true; ./sid -u' 2>&1) && { echo "--no-local: $said"; bad=1; }
case $said in *"sid takes on other rights"*) ;; *) echo "--no-local: $said"; bad=1 ;; esac
cd "$T"; echo x > f; chmod 6755 f; GLEANER_PREFER=there timeout 60 remrun sh -c 'echo y >> f'
[ "$(stat -c %a f) $(wc -l < f)" = "6755 2" ] || { echo "root writes: $(stat -c %a f), $(wc -l < f) lines"; bad=1; }
exit $bad
