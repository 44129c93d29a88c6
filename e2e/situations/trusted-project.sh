#!/bin/bash
# A project's .gleaner.toml grants what it says once its owner has trusted it, and only as it was then; no task and nobody else can have it grant more.
[ -d /srv ] && TMPDIR=/srv
. "$(dirname "$(readlink -f "$0")")/ordinaryuser.sh"
h=$U/home; bad=0
as sh -c 'mkdir -p ~/p/.git/hooks ~/p/sub ~/.ssh; cd ~/p; echo mine > ~/.bashrc; echo key > ~/.ssh/config; echo ref: > .git/HEAD'
cd "$h/p/sub"
wrong() { echo "$1"; bad=1; }
run() { said=$(as remrun --no-local "$@" 2>&1 </dev/null); rc=$?; }
write() { run sh -c 'echo x >> ~/.bashrc'; }
refused() { write; [ $rc = 125 ] && [ "$(cat "$h/.bashrc")" = mine ] || wrong "$1: status $rc, $(cat "$h/.bashrc"): $said"; }
says() { case $said in *"$1"*) ;; *) wrong "not said: $1: $said";; esac; }
write; task=$(as gleaner explain | sed -n 's/^task *\(........\).*/\1/p')
wanted="remrun: nothing committed: ~/.bashrc is outside the write policy
  kept: gleaner recover $task      once: remrun --allow-write ~/.bashrc ...
  project: write = [\"~/.bashrc\"] in .gleaner.toml, then gleaner trust"
[ $rc = 125 ] && [ "$said" = "$wanted" ] || wrong "it reads otherwise ($rc):
$said"
as sh -c 'echo "write = [\"~/.bashrc\", \"~/.ssh/**\", \"../p/.git/hooks\"]" > ../.gleaner.toml'
refused "never trusted"; says ".gleaner.toml grants nothing: it was never trusted"
as gleaner explain | grep -q '^\.gleaner\.toml *grants nothing: it was never trusted' || wrong "explain says nothing of it"
shown=$(as gleaner trust 2>&1) || wrong "not trusted: $shown"
for part in '~/.bashrc' 'NO EFFECT' 'list of secrets' 'decides what is run here later'; do case $shown in *"$part"*) ;; *) wrong "not shown: $part: $shown";; esac; done
write; [ $rc = 0 ] && [ "$(tail -n 1 "$h/.bashrc")" = x ] || wrong "trusted, and yet: $rc, $said"
echo mine > "$h/.bashrc"
# What it never grants.
run sh -c 'echo x >> ~/.ssh/config'; [ $rc != 0 ] && [ "$(cat "$h/.ssh/config")" = key ] || wrong "a secret was written: $rc: $said"
run sh -c 'echo x > ../.git/hooks/post-checkout'; [ $rc = 125 ] && [ ! -e ../.git/hooks/post-checkout ] || wrong "a hook was written: $rc"
case $said in *'project:'*) wrong "a hook is offered to be granted: $said";; esac
# No task changes it: as it is, by another name, by a link, by moving it away.
for attack in 'echo "write = [\"/\"]" >> ../.gleaner.toml' 'ln ../.gleaner.toml ../y; echo "# y" >> ../y' 'echo a > ../x; mv ../x ../.gleaner.toml' \
    'ln -sf sub/x ../.gleaner.toml' 'rm ../.gleaner.toml' 'mv ../.gleaner.toml ../z' 'chmod 666 ../.gleaner.toml'; do
    before=$(stat -c '%a %s %i' ../.gleaner.toml)
    run sh -c "$attack"
    [ $rc = 125 ] && [ "$(stat -c '%a %s %i' ../.gleaner.toml)" = "$before" ] || wrong "a task changed it ($rc): $attack: $said"
done
# A link in what is granted leads nowhere.
as sh -c 'echo "write = [\"out\"]" > ../.gleaner.toml; mkdir -p ~/.config/autostart; ln -s ~/.config/autostart ../out'
as gleaner trust >/dev/null 2>&1 || wrong "not trusted again"
run sh -c 'echo x > ../out/x.desktop'; [ $rc = 125 ] && [ ! -e "$h/.config/autostart/x.desktop" ] || wrong "a link led out: $rc: $said"
as sh -c 'echo "write = [\"~/.bashrc\"]" > ../.gleaner.toml'
refused "changed since"; says "it has changed since it was trusted"
as gleaner trust >/dev/null 2>&1; as gleaner trust --list | grep -q "$h/p  *counts" || wrong "not listed: $(as gleaner trust --list)"
chmod 666 ../.gleaner.toml; refused "writable by all"; says "anybody may write to it"; chmod 644 ../.gleaner.toml
chown root ../.gleaner.toml; refused "another's"; says "belongs to another user"; chown 65534 ../.gleaner.toml
mv ../.gleaner.toml ../real; ln -s real ../.gleaner.toml; refused "a link"; says "symbolic link"; mv ../real ../.gleaner.toml
write; [ $rc = 0 ] || wrong "as it was trusted, and yet: $rc: $said"; echo mine > "$h/.bashrc"
as gleaner trust --revoke >/dev/null 2>&1; refused "revoked"
[ "$(stat -c %a "$U/state/client/trusted.json")" = 600 ] || wrong "others can read what is trusted"
# A copy of the project, as a clone of it is, is another one.
as gleaner trust >/dev/null 2>&1; as cp -a "$h/p" "$h/q"; cd "$h/q/sub"; refused "a copy"; says "it was never trusted"
exit $bad
