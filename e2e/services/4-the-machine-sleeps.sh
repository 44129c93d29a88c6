# The machine goes to sleep while a guest waits for a file: the kernel could not put such a process to sleep, and would give up.
# Guests leave before, and the command is done when the machine is awake. (The kernel goes through it up to where all processes sleep, and
# wakes again: nobody could press the key.)
. "$(dirname "$0")/helpers.sh"
[ -w /sys/power/pm_test ] || { echo "the kernel has no pm_test"; exit 77; }
echo freezer > /sys/power/pm_test; echo 1 > /sys/module/suspend/parameters/pm_test_delay
locks() { systemd-inhibit --list --no-legend | grep -q Gleaner; }
eventually locks || { systemd-inhibit --list; logs gleaner-worker; bad "the worker holds no lock"; }
as_user timeout 240 remrun --no-local sh -c 'n=lar; sleep 8; cat ${n}ge > copied' 2>/tmp/why & run=$!
eventually guest sleep || bad "the guest does not begin"
# It is not known to the worker yet.
as_user sh -c 'head -c 3000000 /dev/urandom > large'
# Who would answer is stopped: as if its link were slow.
hub=$(main_pid gleaner-hub) || { bad "the hub does not run"; exit $B; }
kill -STOP "$hub"
waits() { grep -qs request_wait_answer /proc/[0-9]*/stack; }
eventually waits || bad "the guest was not seen waiting"
systemctl suspend || bad "systemctl suspend"
kernel() { journalctl --no-pager --dmesg --output cat; }
slept() { kernel | grep -q 'PM: suspend exit'; }
eventually slept || bad "the machine did not sleep"
kill -CONT "$hub"
kernel | grep -i -e 'PM: ' -e freez | tail -20 > /tmp/said
grep -i -e failed -e 'refusing to freeze' /tmp/said && bad "the kernel could not put all processes to sleep"
wait $run; status=$?
[ $status = 0 ] && cmp $PLACE/large $PLACE/copied || { cat /tmp/why; bad "the command: status $status"; }
journalctl --no-pager --output cat --unit gleaner-worker | grep -q 'goes to sleep' || { logs gleaner-worker; bad "the worker does not say why guests left"; }
eventually serves || { gleaner status; bad "awake again, the worker does not serve"; }
eventually locks || bad "awake again, the worker holds no lock"
exit $B
