# As the units' own heads say: the hub is enabled, the worker joins by a token once, and is enabled.
. "$(dirname "$0")/helpers.sh"
systemctl enable --now gleaner-hub > /tmp/log 2>&1 || { cat /tmp/log; bad "the hub does not start"; }
token() { gleaner token --role client > /tmp/token-of-client; }
eventually token || { logs gleaner-hub; bad "no token from the hub"; }
journalctl --no-pager --unit gleaner-hub | grep -q gleaner1- && bad "a token is in the journal of the hub"
as_user gleaner use - < /tmp/token-of-client > /tmp/use 2>&1 || { cat /tmp/use; bad "gleaner use"; }
gleaner token | gleaner join - > /tmp/join 2>&1 & join=$!
eventually serves || { cat /tmp/join; gleaner status; bad "the worker that joins does not serve"; }
kill -INT $join; wait $join
systemctl enable --now gleaner-worker > /tmp/log 2>&1 || { cat /tmp/log; bad "the worker does not start"; }
eventually serves || { logs gleaner-worker; gleaner status; bad "the worker does not serve"; }
as_user timeout 120 remrun --no-local sh -c 'grep ^ID= /etc/os-release > made; wc -c < made' > /tmp/said 2>/tmp/why || { cat /tmp/why; bad "a command: status $?"; }
[ "$(cat $PLACE/made)" = "$(grep ^ID= /etc/os-release)" ] && [ "$(cat /tmp/said)" = "$(wc -c < $PLACE/made)" ] || bad "a command made $(cat $PLACE/made /tmp/said)"

# A guest is in a group beside system.slice, after all else.
as_user timeout 200 remrun --no-local sh -c 'sleep 100; :' & run=$!
eventually guest sleep || bad "the guest does not begin"
group=$(sed -n 's/^0:://p' "/proc/$(guest sleep)/cgroup")
case $group in /system.slice/*|'') bad "the guest's group is '$group'";; esac
above=/sys/fs/cgroup$group; while [ "$above" != /sys/fs/cgroup ]; do idle=$(cat "$above/cpu.idle"); [ "$idle" = 1 ] && break; above=${above%/*}; done
[ "${idle:-}" = 1 ] || bad "no group of the guest has cpu.idle: $group"
gleaner guests > /tmp/guests 2>&1; grep -q sh /tmp/guests || { cat /tmp/guests; bad "the owner does not see the guest"; }
begun=$SECONDS; pkill -TERM -u $WHO -x remrun; wait $run; status=$?
[ $status != 0 ] && [ $((SECONDS - begun)) -lt 60 ] || bad "remrun that is told to end: status $status after $((SECONDS - begun)) s"
gone() { ! guest sleep; }
eventually gone || bad "the guest stays"
gleaner doctor --json > /tmp/doctor || { cat /tmp/doctor; bad "doctor: status $?"; }
exit $B
