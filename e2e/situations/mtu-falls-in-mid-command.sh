#!/bin/bash
# The client's own interface gets an MTU below what QUIC needs (a tunnel comes up) in mid-command: it goes on over TCP.
# Needs root; makes its own hub and worker, and a network namespace for the client.
set -u
[ "$(id -u)" = 0 ] || { echo "needs root"; exit 77; }
T=$(mktemp -d ${TMPDIR:-/tmp}/gleaner-situation.XXXXXX) || exit 77
NS=glcase$$; P=$((20000 + $$ % 20000))
mkdir -m 700 "$T"/{h,c}; mkdir -m 700 "$T"/{h,c}/{home,run,config,state}
env_of() { echo HOME="$T/$1/home" GLEANER_RUNTIME_DIR="$T/$1/run" GLEANER_CONFIG_DIR="$T/$1/config" GLEANER_STATE_DIR="$T/$1/state"; }
hub() { env $(env_of h) "$@"; }
client() { ip netns exec $NS env $(env_of c) "$@"; }
trap 'client gleaner stop; hub gleaner stop; ip link del gl$$ ; ip netns del $NS; cd /; rm -rf "$T"' EXIT
ip netns add $NS && ip link add gl$$ type veth peer name c0 netns $NS || exit 77
ip addr add 10.79.0.1/24 dev gl$$; ip link set gl$$ up
ip -n $NS addr add 10.79.0.2/24 dev c0; ip -n $NS link set c0 up; ip -n $NS link set lo up
cd "$T"; mkdir work; cd work
hub gleaner up --listen 10.79.0.1:$P --detach >/dev/null || exit 77
client gleaner use $(hub gleaner token --role client 2>/dev/null | grep -o 'gleaner1-[0-9a-f]*') >/dev/null || exit 77
client remrun --no-local true || exit 77
head -c 4000000 /dev/urandom > big
(sleep 1.5; ip -n $NS link set c0 mtu 1100; ip link set gl$$ mtu 1100) &
s=$SECONDS
said=$(client timeout 60 remrun --no-local sh -c 'sleep 3; md5sum < big'); rc=$?
echo "status $rc after $((SECONDS - s)) s"; wait
[ $rc = 0 ] && [ "$said" = "$(md5sum < big)" ] && [ $((SECONDS - s)) -lt 25 ]
