#!/bin/busybox sh
# First process of the machine that `cargo xtask machine` boots. Begins in an initramfs that has busybox and modules; makes the host's
# own files, read-only and with a layer in memory above them, its root, and goes on there: control groups of version 2 as systemd
# makes them, and the checks in a group as that of a service. What the checks say goes to the second serial line.

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

if [ "$1" = again ]; then in_new_root; else in_initramfs; fi || echo "machine: did not come to its end" >/dev/ttyS1
# The emulator ends when the machine is reset.
echo b >/proc/sysrq-trigger
