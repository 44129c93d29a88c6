#!/bin/bash
# A worker that ends says why in its log.
. "$(dirname "$(readlink -f "$0")")/casepool.sh"
pool || exit 77
bad=0
for signal in TERM HUP INT; do
    kill -$signal $W; for i in $(seq 100); do kill -0 $W 2>/dev/null || break; sleep 0.1; done
    kill -0 $W 2>/dev/null && { echo "SIG$signal: it does not end"; bad=1; kill -9 $W; }
    tail -n 20 $T/w0.log | grep -q "told to end.*SIG$signal" || { echo "SIG$signal: $(tail -n 3 $T/w0.log)"; bad=1; }
    : > $T/w0.log; worker w0; for i in $(seq 50); do grep -q 'works for' $T/w0.log && break; sleep 0.1; done
done
exit $bad
