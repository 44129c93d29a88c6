# Stopped, nothing of it runs or is mounted; purged, no unit, key or journal is left.
. "$(dirname "$0")/helpers.sh"
gleaner stop > /tmp/stop 2>&1; as_user gleaner stop > /tmp/stop 2>&1
systemctl stop gleaner-worker gleaner-hub || bad "systemctl stop"
processes() { local p; for p in /proc/[0-9]*; do case $(readlink $p/exe) in /usr/bin/gleaner*|/usr/bin/remrun*) echo "$p $(tr '\0' ' ' < $p/cmdline)";; esac; done; }
none() { [ -z "$(processes)" ]; }
eventually none || bad "left running: $(processes)"
grep -i gleaner /proc/self/mountinfo | grep -v ' /var/lib/gleaner ' && bad "left mounted"
groups=$(find /sys/fs/cgroup -type d -name '*gleaner*'); [ -z "$groups" ] || bad "left groups: $groups"
for unit in gleaner-hub gleaner-worker; do [ "$(systemctl show --property Result --value $unit)" = success ] || { systemctl status --no-pager $unit; bad "$unit did not end well"; }; done
systemctl start gleaner-hub && dpkg --purge gleaner > /tmp/log 2>&1 || { cat /tmp/log; bad "dpkg --purge"; }
eventually none || bad "after a purge these run: $(processes)"
[ "$(systemctl is-active gleaner-hub)" != active ] || bad "after a purge the hub is active"
[ -z "$(ls -A /var/lib/gleaner)" ] || bad "after a purge keys and journal are there: $(ls -A /var/lib/gleaner)"
left=$(find /etc/systemd -name '*gleaner*'); [ -z "$left" ] || bad "after a purge units are enabled: $left"
exit $B
