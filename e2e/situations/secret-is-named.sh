#!/bin/bash
# A command that may not run here wants a secret: path, reason and remedy are named, on standard error and by explain.
set -u
mkdir -p -m 700 ~/.ssh && echo key > ~/.ssh/id_x || exit 77
remrun --no-local true || { echo "no pool"; exit 77; }
said=$(remrun --no-local cat ~/.ssh/id_x 2>&1); rc=$?; explained=$(gleaner explain); bad=0
[ $rc = 125 ] || { echo "status $rc"; bad=1; }
for part in "$HOME/.ssh/id_x" 'list of secrets' 'run the command here'; do
    case $said in *"$part"*) ;; *) echo "not said: $part: $said"; bad=1;; esac
    case $explained in *"$part"*) ;; *) echo "not explained: $part: $explained"; bad=1;; esac
done
[ "$(remrun cat ~/.ssh/id_x)" = key ] || { echo "it does not run here"; bad=1; }
rm -rf ~/.ssh
exit $bad
