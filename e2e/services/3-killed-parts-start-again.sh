# systemd starts a hub or worker again that was killed, and the pool serves as before.
. "$(dirname "$0")/helpers.sh"
for unit in gleaner-worker gleaner-hub; do
    before=$(main_pid $unit) || { bad "$unit does not run"; exit $B; }
    kill -9 "$before"
    again() { local now; now=$(main_pid $unit) && [ "$now" != "$before" ] && [ "$(systemctl is-active $unit)" = active ]; }
    eventually again || bad "$unit is not started again"
    eventually serves || { logs $unit; bad "after $unit was killed nothing is served"; }
done
# Told to start anew while a command runs, the hub takes it up again, or the command is done again.
as_user timeout 200 remrun --no-local sh -c 'for i in 1 2 3 4 5; do sleep 1; done; echo all > all' 2>/tmp/why & run=$!
sleep 2; systemctl restart gleaner-hub || bad "the hub is not started anew"
wait $run; status=$?
[ $status = 0 ] && [ "$(cat $PLACE/all 2>&1)" = all ] || { cat /tmp/why; bad "a command while the hub was started anew: status $status, $(cat $PLACE/all 2>&1)"; }
systemctl restart gleaner-worker && eventually serves || { logs gleaner-worker; bad "after the worker was started anew nothing is served"; }
exit $B
