#!/bin/bash
# Ctrl-C while the command's worker has just died (the hub has not noticed yet): remrun must end within 5 s (SPECIFICATION, "Signals to remrun
# reach the task; it is gone within 5 s"), and the command must not begin again elsewhere and commit. MODE=stop: SIGSTOP.
. "$(dirname "$(readlink -f "$0")")/casepool.sh"
pool || exit 77
mkdir $T/x; cd $T/x
cat > $T/go.py <<'P'
import subprocess,sys,time,signal,os
q=subprocess.Popen(['remrun','--no-local','sh','-c','exec 2>/dev/null; echo a > partial; sleep 40; echo b > done'],stdout=subprocess.DEVNULL,stderr=open(sys.argv[2]+'/err','w'),stdin=subprocess.DEVNULL,start_new_session=True)
time.sleep(1.5)
open(sys.argv[2]+'/begun','w'); time.sleep(0.1)
d=float(sys.argv[1])
while not os.path.exists(sys.argv[2]+'/killed'): time.sleep(0.02)
time.sleep(d); q.send_signal(signal.SIGINT); t=time.time()
try: rc=q.wait(60)
except subprocess.TimeoutExpired: q.kill(); rc='still there after 60 s'
print('after SIGINT: %.1f s, status %s'%(time.time()-t,rc)); sys.exit(0 if time.time()-t<10 else 1)
P
bad=0
for d in ${DELAYS:-1}; do
rm -f $T/begun $T/killed; W0=$W
c python3 $T/go.py $d $T & G=$!
for i in $(seq 100); do [ -f $T/begun ] && break; sleep 0.1; done
n=w$((1+${n:-0})); n=${n#w}; worker w$n; W1=$W; sleep 2.5
kill -${SIG:-9} $W0; touch $T/killed
wait $G || bad=1
sleep 1; [ -e $T/x/done ] && { echo "the command went on elsewhere and committed"; bad=1; rm $T/x/done; }
cat $T/err | head -3; kill -9 $W0; W=$W1; served || bad=1
done
exit $bad
