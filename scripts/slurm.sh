#!/bin/bash
# A real Slurm cluster on this machine, for tests: a controller and three hosts, n1 and n2 with two (false) GPUs each and
# n3 with CPUs. Each host is a network namespace with a host name, an address and a /tmp of its own; other folders are
# shared, as on clusters. It needs root and Debian's packages of Slurm.
#
#   scripts/slurm.sh up      start it; prints what to export
#   scripts/slurm.sh down    end it
#   scripts/slurm.sh cut|join HOST         take its network away, and give it back
#   scripts/slurm.sh part|heal HOST HOST   lose every packet between two hosts, and no longer
#   scripts/slurm.sh slow HOST MS          delay every packet to and from it by so many milliseconds; 0: no longer
#   scripts/slurm.sh gain|lose ADDRESS     give this machine, where engines run, a further address, and take it away
#   scripts/slurm.sh kill|start HOST       kill everything on it, as a loss of power would; start it again
#   scripts/slurm.sh apart HOST [FOLDER…]  start a killed host without shared folders: it sees neither this checkout, nor
#                                          home directories, nor /var/tmp; the folders only to read, as of an image
#   scripts/slurm.sh patience SECONDS      how long the controller waits for a host that does not answer
#   scripts/slurm.sh why     says what is missing here, or that a cluster is there already, and nothing when nothing is
set -euo pipefail

NUMBER=${RECIPE_SLURM_CLUSTER:-0} # several clusters on one machine have different numbers
STATE=${RECIPE_SLURM_STATE:-/var/tmp/recipe-slurm$NUMBER}
NAME=recipe$NUMBER
BRIDGE=br$NAME
NET=10.$((77 + NUMBER)).0
PORT=$((16817 + 10 * NUMBER))
HOSTS="n1 n2 n3"
PACKAGES="slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge iproute2"

why() {
  [ "$(id -u)" = 0 ] || { echo "Slurm's hosts are network namespaces, which only root can make"; return; }
  for program in slurmctld slurmd sbatch munged ip unshare; do
    command -v "$program" >/dev/null || { echo "$program is not installed: apt-get install $PACKAGES"; return; }
  done
  # The tests that start a second one would end the first at their end.
  ! ip link show "$BRIDGE" >/dev/null 2>&1 || { echo "a cluster is there already, of another checkout or left by \
tests that were killed; wait for its tests, or end it by scripts/slurm.sh down"; return; }
  ip netns add $NAME-probe 2>/dev/null || { echo "network namespaces cannot be made here"; return; }
  ip netns del $NAME-probe
}

up() {
  mkdir -p "$STATE"/{etc,log,state,spool,munge}
  chmod 755 "$STATE"
  chmod 711 "$STATE/munge"
  ip link add "$BRIDGE" type bridge
  ip addr add "$NET.1/24" dev "$BRIDGE"
  ip link set "$BRIDGE" up
  { echo "127.0.0.1 localhost"; echo "$NET.1 head"; } >"$STATE/etc/hosts"
  local i=10 n
  for n in $HOSTS; do i=$((i + 1)); echo "$NET.$i $n" >>"$STATE/etc/hosts"; done
  i=10
  for n in $HOSTS; do
    i=$((i + 1))
    mkdir -p "/etc/netns/$NAME-$n"
    cp "$STATE/etc/hosts" "/etc/netns/$NAME-$n/hosts"
    ip netns add "$NAME-$n"
    ip link add "v$NUMBER-$n" type veth peer name eth0 netns "$NAME-$n"
    ip link set "v$NUMBER-$n" master "$BRIDGE" up
    ip -n "$NAME-$n" addr add "$NET.$i/24" dev eth0
    ip -n "$NAME-$n" link set eth0 up
    ip -n "$NAME-$n" link set lo up
    ip -n "$NAME-$n" route add default via "$NET.1"
  done
  head -c 128 /dev/urandom >"$STATE/munge/key"
  chmod 600 "$STATE/munge/key"
  munged --key-file="$STATE/munge/key" --socket="$STATE/munge/sock" --pid-file="$STATE/munge/pid" \
    --log-file="$STATE/munge/log" --seed-file="$STATE/munge/seed" --num-threads=2 --force 2>/dev/null
  configure
  # A controller and hosts that are processes of their own; each writes its pid, which is that of its session.
  SLURM_CONF="$STATE/etc/slurm.conf" setsid unshare --uts --mount bash -c \
    "hostname head; mount --bind '$STATE/etc/hosts' /etc/hosts; exec slurmctld -D" >"$STATE/log/ctld.out" 2>&1 &
  echo $! >"$STATE/log/ctld.sid"
  for n in $HOSTS; do start "$n"; done
  export SLURM_CONF="$STATE/etc/slurm.conf"
  for _ in $(seq 300); do
    [ "$(sinfo -h -N -o %T 2>/dev/null | grep -c '^idle$')" -ge 3 ] && { echo "SLURM_CONF=$SLURM_CONF"; return; }
    sleep 0.1
  done
  echo "the hosts are not idle after 30 seconds: see $STATE/log" >&2
  return 1
}

start() {
  mkdir -p "$STATE/spool/$1"
  SLURM_CONF="$STATE/etc/slurm.conf" setsid ip netns exec "$NAME-$1" unshare --uts bash -c \
    "hostname $1; mount -t tmpfs tmpfs /tmp; exec slurmd -D" >"$STATE/log/slurmd-$1.out" 2>&1 &
  echo $! >"$STATE/log/slurmd-$1.sid"
}

# What slurmd itself needs is all that an apart host has in common with the others.
apart() {
  local name=$1 top=/$(cut -d/ -f2 <<<"$PWD")
  shift
  case $top in /usr | /etc | /bin | /lib* | /proc | /dev) echo "$top cannot be hidden" >&2; return 1 ;; esac
  SLURM_CONF="$STATE/etc/slurm.conf" setsid ip netns exec "$NAME-$name" unshare --uts bash -c "
    set -e
    hostname $name
    mount -t tmpfs tmpfs /tmp
    mkdir /tmp/state
    mount --bind '$STATE' /tmp/state
    for folder in $*; do mkdir -p /tmp/kept/\$folder; mount --bind \$folder /tmp/kept/\$folder; done
    for folder in /root /home /var/tmp '$top'; do [ ! -d \$folder ] || mount -t tmpfs tmpfs \$folder; done
    mkdir -p '$STATE'
    mount --bind /tmp/state '$STATE'
    for folder in $*; do
      mkdir -p \$folder
      mount --bind /tmp/kept/\$folder \$folder
      mount -o remount,bind,ro \$folder
    done
    cd /
    exec slurmd -D" >"$STATE/log/slurmd-$name.out" 2>&1 &
  echo $! >"$STATE/log/slurmd-$name.sid"
}

kill_host() {
  local p
  for p in $(ip netns pids "$NAME-$1" 2>/dev/null || true); do kill -9 "$p" 2>/dev/null || true; done
}

# part has each of two hosts send its packets for the other to a network card that nobody has, so that they are lost
# without a word, as behind a broken switch.
part() {
  ip -n "$NAME-$1" neigh replace "$(address "$2")" lladdr 02:00:00:00:00:01 nud permanent dev eth0
  ip -n "$NAME-$2" neigh replace "$(address "$1")" lladdr 02:00:00:00:00:01 nud permanent dev eth0
  if ip netns exec "$NAME-$1" timeout 2 bash -c "</dev/tcp/$(address "$2")/$((PORT + 1))" 2>/dev/null; then
    echo "$1 still reaches $2" >&2
    return 1
  fi
}

heal() {
  ip -n "$NAME-$1" neigh del "$(address "$2")" dev eth0 2>/dev/null || true
  ip -n "$NAME-$2" neigh del "$(address "$1")" dev eth0 2>/dev/null || true
}

address() { echo "$NET.$((10 + ${1#n}))"; }

# slow puts a program between a host's network card and the bridge: kernels without sch_netem cannot delay packets.
slow() {
  local card="v$NUMBER-$1" far="s$NUMBER-$1" near="t$NUMBER-$1" pid="$STATE/log/slow-$1.sid"
  if [ -s "$pid" ]; then
    end "$(cat "$pid")"
    rm -f "$pid"
    ip link del "$far" 2>/dev/null || true
    ip link set "$card" master "$BRIDGE"
  fi
  [ "$2" != 0 ] || return 0
  ip link add "$far" type veth peer name "$near"
  ip link set "$near" master "$BRIDGE" up
  ip link set "$card" nomaster
  ip link set "$far" up
  setsid python3 "$(dirname "$0")/slow-link.py" "$card" "$far" "$2" >"$STATE/log/slow-$1.out" 2>&1 &
  echo $! >"$pid"
}

# end ends a process: asked for ten seconds, then killed.
end() {
  kill "$1" 2>/dev/null || return 0
  for _ in $(seq 100); do
    kill -0 "$1" 2>/dev/null || return 0
    sleep 0.1
  done
  kill -9 "$1" 2>/dev/null || true
}

patience() {
  sed -i "s/^SlurmdTimeout=.*/SlurmdTimeout=$1/" "$STATE/etc/slurm.conf"
  SLURM_CONF="$STATE/etc/slurm.conf" scontrol reconfigure
}

configure() {
  cat >"$STATE/etc/slurm.conf" <<CONF
ClusterName=recipe
SlurmctldHost=head($NET.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$STATE/munge/sock,cred_expire=5
SlurmctldPort=$PORT
SlurmdPort=$((PORT + 1))
SlurmctldPidFile=$STATE/log/slurmctld.pid
SlurmdPidFile=$STATE/log/slurmd-%n.pid
SlurmctldLogFile=$STATE/log/slurmctld.log
SlurmdLogFile=$STATE/log/slurmd-%n.log
SlurmdSpoolDir=$STATE/spool/%n
StateSaveLocation=$STATE/state
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=5,bf_interval=5,batch_sched_delay=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=10
KillWait=5
MinJobAge=300
SlurmdParameters=config_overrides
NodeName=n[1-2] NodeAddr=$NET.[11-12] CPUs=4 RealMemory=8000 Gres=gpu:2 Feature=gpu
NodeName=n3 NodeAddr=$NET.13 CPUs=64 RealMemory=8000 Feature=cpu
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
PartitionName=gpu Nodes=n[1-2] Default=NO MaxTime=1:00:00 State=UP PriorityTier=1 GraceTime=20
PartitionName=urgent Nodes=n[1-2] MaxTime=1:00:00 State=UP PriorityTier=9 PreemptMode=OFF
PartitionName=cpu Nodes=n3 Default=YES MaxTime=1:00:00 State=UP
CONF
  echo 'NodeName=n[1-2] Name=gpu File=/dev/'"$NAME"'gpu[0-1]' >"$STATE/etc/gres.conf"
  printf 'CgroupPlugin=cgroup/v1\nConstrainCores=no\nConstrainRAMSpace=no\n' >"$STATE/etc/cgroup.conf"
  local k
  for k in 0 1; do [ -e "/dev/${NAME}gpu$k" ] || mknod "/dev/${NAME}gpu$k" c 1 3; done
  chmod 644 "$STATE"/etc/*
}

# The controller writes its state when it ends, so nothing is removed before.
down() {
  local f n
  for f in "$STATE"/log/*.sid "$STATE"/log/*.pid "$STATE/munge/pid"; do
    [ -s "$f" ] && end "$(cat "$f" 2>/dev/null)"
  done
  for n in $HOSTS; do
    kill_host "$n"
    ip netns del "$NAME-$n" 2>/dev/null || true
    ip link del "v$NUMBER-$n" 2>/dev/null || true # a namespace in which something still ends would keep it
    rm -rf "/etc/netns/$NAME-$n"
  done
  ip link del "$BRIDGE" 2>/dev/null || true
  rm -f "/dev/${NAME}gpu0" "/dev/${NAME}gpu1"
  rm -rf "$STATE"
}

case "${1:-}" in
  up) up ;;
  down) down ;;
  why) why ;;
  cut) ip link set "v$NUMBER-$2" down ;;
  join) ip link set "v$NUMBER-$2" up ;;
  part) part "$2" "$3" ;;
  heal) heal "$2" "$3" ;;
  slow) slow "$2" "$3" ;;
  gain) ip addr add "$2/32" dev "$BRIDGE" ;;
  lose) ip addr del "$2/32" dev "$BRIDGE" ;;
  kill) kill_host "$2" ;;
  start) start "$2" ;;
  apart) apart "${@:2}" ;;
  patience) patience "$2" ;;
  *) sed -n '2,16p' "$0"; exit 2 ;;
esac
