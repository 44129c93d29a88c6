#!/bin/bash
# A worker of the version before signs no results, and a client of the version before no launches: where signatures are required nothing of
# that is committed or begun, the reason is told, and the command runs here. Where both sign, commands and jobs run on the worker.
. "$(dirname "$(readlink -f "$0")")/casepool.sh"
B=0
end_of() { kill $1; for i in $(seq 100); do kill -0 $1 2>/dev/null || return 0; sleep 0.1; done; echo "process $1 does not end"; return 1; }
daemon() { c gleaner stop >/dev/null 2>&1; c env "$@" gleaner status >/dev/null 2>&1; }
wrong() { echo "$*"; B=1; }

WPRE='export GLEANER_PROTOCOL=2;'
hub && worker w0 && c gleaner use $(token client) >/dev/null 2>&1 && served || exit 77
mkdir $T/work; cd $T/work
refused() { # NAME, what is said
  c timeout 60 remrun --no-local sh -c "echo made > $1-there" 2>$T/why && wrong "$1: it ended well elsewhere"
  grep -q "$2" $T/why || wrong "$1: said was: $(cat $T/why)"
  [ -e $1-there ] && wrong "$1: something was committed"
  c timeout 60 remrun sh -c "echo made > $1-here" 2>$T/why || wrong "$1: it did not run here: $(cat $T/why)"
  [ "$(cat $1-here)" = made ] || wrong "$1: it has not made its file here"
}
daemon GLEANER_SIGNATURES=required; refused result 'the result is not signed by worker w0'
end_of $W || B=1; WPRE='export GLEANER_SIGNATURES=required;'; worker w0
c gleaner stop >/dev/null 2>&1; served || B=1
daemon GLEANER_PROTOCOL=2; refused launch 'signatures are required here'
grep -q 'a launch is refused' $T/w0.log || wrong "the worker's log has no refusal: $(tail -n 3 $T/w0.log)"
daemon GLEANER_SIGNATURES=required
said=$(c timeout 60 remrun --no-local sh -c 'echo said; echo made > signed' 2>$T/why)
[ "$said$(cat signed 2>/dev/null)" = saidmade ] || wrong "signed: '$said': $(cat $T/why)"
printf 'echo one; echo 1 > one\necho two; echo 2 > two\n' > $T/list
c timeout 100 gleaner submit --wait $T/list >$T/submitted 2>&1 || wrong "a batch job: $(tail -n 3 $T/submitted)"
[ "$(cat one two 2>/dev/null | tr -d '\n')" = 12 ] || wrong "a batch job: $(c gleaner jobs 2>&1 | tail -n 3)"
said=$(c timeout 100 gleaner run echo task-{} ::: a b c 2>$T/why | sort | tr '\n' ' ')
[ "$said" = 'task-a task-b task-c ' ] || wrong "a job: '$said': $(cat $T/why)"
exit $B
