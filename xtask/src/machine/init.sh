#!/bin/busybox sh
# First process of the machine that `cargo xtask machine` boots. Begins in an initramfs that has busybox and modules; makes the host's
# own files, read-only and with a layer in memory above them, its root, and goes on there: control groups of version 2 as systemd
# makes them, and the checks in a group as that of a service; or systemd itself, which starts the checks of services. What the checks say
# goes to the second serial line.

in_initramfs() {
    b=/bin/busybox
    $b mkdir -p /proc /sys /dev /host /layer /new
    $b mount -t proc proc /proc && $b mount -t sysfs sysfs /sys && $b mount -t devtmpfs devtmpfs /dev || return
    while read -r module; do
        $b insmod "/modules/$module" || $b echo "machine: $module is not loaded" >/dev/ttyS1
    done </modules/order
    $b mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro host /host || return
    $b mount -t tmpfs -o size=256m tmpfs /layer && $b mkdir /layer/upper /layer/work || return
    $b mount -t overlay -o lowerdir=/host,upperdir=/layer/upper,workdir=/layer/work overlay /new || return
    $b mkdir -p /new/proc /new/sys /new/dev /new/run /new/machine
    $b mount -t ext4 /dev/vda /new/machine && $b mount -t tmpfs tmpfs /new/run || return
    $b cp /init /new/machine/init && $b cp /arguments /new/machine/arguments || return
    for folder in proc sys dev; do $b mount --move /$folder /new/$folder || return; done
    exec $b switch_root /new /bin/sh /machine/init again
}

# What systemd starts: the checks, with what an ordinary machine has that goes to sleep; and the end of the machine with theirs.
with_systemd() {
    { read -r programs; read -r filter; read -r packages; } </machine/arguments
    units=/run/systemd/system
    mkdir -p $units /machine/tmp && ln -s "$packages" /machine/packages || return
    cat >$units/checks.service <<-END || return
	[Unit]
	Wants=dbus.socket systemd-logind.service
	After=dbus.socket systemd-logind.service
	SuccessAction=reboot-force
	FailureAction=reboot-force
	[Service]
	Type=oneshot
	Environment=HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin TMPDIR=/machine/tmp
	ExecStart="$programs/e2e" machine --filter "$filter"
	StandardOutput=file:/dev/ttyS1
	StandardError=file:/dev/ttyS1
	END
    printf '[Unit]\nRequires=checks.service\n' >$units/checks.target || return
    # The host's own are not this machine's; nor are its leftovers, which would be cleared away one by one.
    : >/etc/fstab; rm -rf /etc/systemd/system/*.wants
    ln -s /dev/null $units/systemd-tmpfiles-setup.service
    mount -t tmpfs tmpfs /tmp && mount -t tmpfs tmpfs /var/tmp || return
    # What guests write cannot be above the host's own files in layers: those are in layers already.
    mkdir -p /machine/state /var/lib/gleaner && mount --bind /machine/state /var/lib/gleaner || return
    exec /lib/systemd/systemd --unit=checks.target
}

in_new_root() {
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TMPDIR=/machine/tmp LANG=C.UTF-8
    export PATH HOME TMPDIR LANG
    mkdir -p /dev/pts /dev/shm /machine/tmp
    mount -t devpts -o ptmxmode=0666,mode=0620 devpts /dev/pts && mount -t tmpfs tmpfs /dev/shm || return
    mount -t cgroup2 -o nsdelegate,memory_recursiveprot cgroup2 /sys/fs/cgroup && cd /sys/fs/cgroup || return
    for controller in $(cat cgroup.controllers); do echo "+$controller" >cgroup.subtree_control; done
    mkdir -p system.slice user.slice && echo "+cpu +io +memory +pids" >system.slice/cgroup.subtree_control || return
    mkdir -p system.slice/checks.service && echo $$ >system.slice/checks.service/cgroup.procs && cd / || return
    ip link set lo up
    { read -r programs; read -r filter; } </machine/arguments
    "$programs/e2e" machine --filter "$filter" </dev/null >/dev/ttyS1 2>&1 || :
}

begin() {
    [ "$1" = again ] || { in_initramfs; return; }
    case $(cat /proc/cmdline) in *gleaner.services*) with_systemd ;; *) in_new_root ;; esac
}

begin "$@" || echo "machine: did not come to its end" >/dev/ttyS1
# The emulator ends when the machine is reset.
echo b >/proc/sysrq-trigger
