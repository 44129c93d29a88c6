# What the packages put there is understood by a systemd that runs, and nothing of it is enabled.
. "$(dirname "$0")/helpers.sh"
useradd --create-home $WHO && install -d -m 0700 -o $WHO /run/$WHO $PLACE || exit 77
dpkg --install /machine/packages/gleaner_*.deb > /tmp/log 2>&1 || { cat /tmp/log; bad "dpkg --install"; }
for unit in gleaner-hub gleaner-worker; do
    [ "$(systemctl is-enabled $unit 2>&1)" = disabled ] || bad "$unit is $(systemctl is-enabled $unit 2>&1)"
    [ "$(systemctl is-active $unit)" = inactive ] || bad "$unit is $(systemctl is-active $unit)"
done
systemctl start gleaner-worker || bad "a worker that has joined nothing fails to start, and is not just passed over"
[ "$(systemctl is-active gleaner-worker)" = inactive ] || bad "a worker that has joined nothing is $(systemctl is-active gleaner-worker)"
exit $B
