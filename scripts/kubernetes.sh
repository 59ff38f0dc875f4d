#!/bin/bash
# A real Kubernetes cluster on this machine, for tests and without Docker: API server, controller manager and scheduler,
# and two nodes n1 and n2, each a kubelet and a containerd with network, mounts and processes of their own, whose pods
# have addresses of their own (CNI). It needs root and Debian's packages of etcd, containerd, runc and the CNI plugins.
#
#   scripts/kubernetes.sh build    build Kubernetes and a scheduler that knows gangs (coscheduling) from source into the
#                                  user's cache (26 minutes of one core, 2 GB; once)
#   scripts/kubernetes.sh up       start it with an image that has PROGRAM... at their paths; prints what to export
#   scripts/kubernetes.sh down     end it
#   scripts/kubernetes.sh kill|start NODE    kill everything on a node, as a loss of power would; start it again
#   scripts/kubernetes.sh api PATH [OPTION OF CURL...]    ask its API server as an administrator
#   scripts/kubernetes.sh gangs    has the status 0 when its scheduler for gangs is built
#   scripts/kubernetes.sh why      says what is missing here, or that a cluster is there already, and nothing
#                                  when nothing is
set -euo pipefail

VERSION=1.34.4
PLUGINS=sigs.k8s.io/scheduler-plugins # of a second scheduler, which knows gangs (PodGroup)
PLUGINS_VERSION=0.34.7
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/recipe-kubernetes/$VERSION
STATE=${RECIPE_KUBERNETES_STATE:-/var/tmp/recipe-kubernetes}
BRIDGE=${RECIPE_KUBERNETES_BRIDGE:-brkube}
NET=${RECIPE_KUBERNETES_NET:-10.78} # NET.0 are the nodes, NET.11 and NET.12 their pods
PORT=26443
NODES="n1 n2"
COMPONENTS="kube-apiserver kube-controller-manager kube-scheduler kubelet"
IMAGE=recipe.test/recipe:1
PACKAGES="etcd-server containerd runc containernetworking-plugins busybox-static iproute2 curl"

why() {
  [ "$(id -u)" = 0 ] || { echo "the nodes are network namespaces, which only root can make"; return; }
  local program
  for program in etcd containerd runc /usr/lib/cni/bridge busybox ip curl python3; do
    command -v "$program" >/dev/null || { echo "$program is not installed: apt-get install $PACKAGES"; return; }
  done
  for program in $COMPONENTS; do
    [ -x "$CACHE/bin/$program" ] || { echo "$program is not built: scripts/kubernetes.sh build"; return; }
  done
  # The tests that start a second one would end the first at their end.
  ! ip link show "$BRIDGE" >/dev/null 2>&1 || { echo "a cluster is there already, of another checkout or left by \
tests that were killed; wait for its tests, or end it by scripts/kubernetes.sh down"; return; }
  ip netns add recipe-probe 2>/dev/null || { echo "network namespaces cannot be made here"; return; }
  ip netns del recipe-probe
}

# build makes a module that requires Kubernetes with its staging modules, which its own go.mod takes from its repository.
build() {
  local c source=$CACHE/source
  mkdir -p "$source" "$CACHE/bin"
  cd "$source"
  if [ ! -s go.sum ]; then
    { echo 'package tools'; for c in $COMPONENTS; do echo "import _ \"k8s.io/kubernetes/cmd/$c/app\""; done; } >tools.go
    module
  fi
  for c in $COMPONENTS; do program "$c" "k8s.io/kubernetes/cmd/$c"; done
  build_gangs
}

# module makes a go.mod for the programs of the current folder.
module() {
  local c staged
  rm -f go.mod
  go mod init recipe.test/kubernetes
  go mod edit -require "k8s.io/kubernetes@v$VERSION" -replace "k8s.io/kubernetes=k8s.io/kubernetes@v$VERSION" "$@"
  staged=$(go mod download -json "k8s.io/kubernetes@v$VERSION" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
  for c in $(sed -n 's#.*=> ./staging/src/\(k8s.io/.*\)#\1#p' "$staged"); do
    go mod edit -replace "$c=$c@v0.${VERSION#1.}"
  done
  go mod tidy -e
}

program() { # NAME PACKAGE
  [ -x "$CACHE/bin/$1" ] && return
  CGO_ENABLED=0 GOGC=400 nice -n 19 go build -p 1 -trimpath \
    -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=v$VERSION" -o "$CACHE/bin/$1.new" "$2"
  mv "$CACHE/bin/$1.new" "$CACHE/bin/$1"
}

# build_gangs makes a scheduler with the coscheduling plugin, in a module of its own: it has newer dependencies.
build_gangs() {
  local source=$CACHE/gangs
  mkdir -p "$source"
  cd "$source"
  if [ ! -s go.sum ]; then
    cat >main.go <<GO
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	_ "$PLUGINS/apis/config/scheme"
	"$PLUGINS/pkg/coscheduling"
)

func main() {
	os.Exit(cli.Run(app.NewSchedulerCommand(app.WithPlugin(coscheduling.Name, coscheduling.New))))
}
GO
    module -require "$PLUGINS@v$PLUGINS_VERSION"
  fi
  cp "$(go list -m -f '{{.Dir}}' "$PLUGINS")"/config/crd/bases/scheduling.x-k8s.io_podgroups.yaml podgroups.yaml
  chmod 644 podgroups.yaml
  program gang-scheduler .
}

address() { echo "$NET.0.1${1#n}"; }
pods() { echo "$NET.1${1#n}"; }

up() {
  mkdir -p "$STATE"/{log,pki,pid}
  chmod 755 "$STATE"
  network
  image "$@"
  openssl genrsa -out "$STATE/pki/sa.key" 2048 2>/dev/null
  openssl rsa -in "$STATE/pki/sa.key" -pubout -out "$STATE/pki/sa.pub" 2>/dev/null
  umask 077
  ADMIN=$(openssl rand -hex 16)
  USER_TOKEN=$(openssl rand -hex 16)
  { echo "$ADMIN,admin,1,system:masters"; echo "$USER_TOKEN,researcher,2"; } >"$STATE/pki/tokens.csv"
  kubeconfig admin "$ADMIN"
  kubeconfig researcher "$USER_TOKEN"
  umask 022
  control
  local n
  for n in $NODES; do start "$n"; done
  for n in $NODES; do
    await "node $n to be ready" node_ready "$n"
    api "/api/v1/nodes/$n/status" -X PATCH -H 'Content-Type: application/strategic-merge-patch+json' \
      -d '{"status":{"capacity":{"nvidia.com/gpu":"2"},"allocatable":{"nvidia.com/gpu":"2"}}}' >/dev/null # false ones
  done
  echo "KUBECONFIG=$STATE/researcher.kubeconfig"
}

network() {
  local n m
  ip link add "$BRIDGE" type bridge
  ip addr add "$NET.0.1/24" dev "$BRIDGE"
  ip link set "$BRIDGE" up
  for n in $NODES; do
    ip netns add "recipe-kube-$n"
    ip link add "vk-$n" type veth peer name eth0 netns "recipe-kube-$n"
    ip link set "vk-$n" master "$BRIDGE" up
    ip -n "recipe-kube-$n" addr add "$(address "$n")/24" dev eth0
    ip -n "recipe-kube-$n" link set eth0 up
    ip -n "recipe-kube-$n" link set lo up
    ip -n "recipe-kube-$n" route add default via "$NET.0.1"
    ip netns exec "recipe-kube-$n" sysctl -qw net.ipv4.ip_forward=1
    ip route add "$(pods "$n").0/24" via "$(address "$n")"
    for m in $NODES; do
      [ "$m" = "$n" ] || ip -n "recipe-kube-$n" route add "$(pods "$m").0/24" via "$(address "$m")"
    done
  done
}

# image makes one of busybox and the given programs, which is that of the pods' sandboxes, too.
image() {
  python3 - "$STATE/image.tar" "$IMAGE" "$@" <<'PY'
import hashlib, io, json, sys, tarfile

out, tag, programs = sys.argv[1], sys.argv[2], sys.argv[3:]


def add(tar, name, data=b"", **fields):
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), 0o755
    for field, value in fields.items():
        setattr(info, field, value)
    tar.addfile(info, io.BytesIO(data))


layer = io.BytesIO()
with tarfile.open(fileobj=layer, mode="w") as tar:
    add(tar, "tmp", type=tarfile.DIRTYPE, mode=0o1777)
    add(tar, "bin/busybox", open("/bin/busybox", "rb").read())
    for applet in ("sh", "sleep", "touch", "cat", "ls", "env", "wget"):
        add(tar, "bin/" + applet, type=tarfile.SYMTYPE, linkname="busybox")
    for program in programs:
        add(tar, program.lstrip("/"), open(program, "rb").read())
layer = layer.getvalue()
digest = hashlib.sha256(layer).hexdigest()
config = json.dumps({"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": ["sha256:" + digest]},
                     "config": {"Entrypoint": ["/bin/sleep", "2147483647"], "Env": ["PATH=/bin"]}}).encode()
name = hashlib.sha256(config).hexdigest() + ".json"
with tarfile.open(out, "w") as tar:
    add(tar, name, config)
    add(tar, "layer.tar", layer)
    add(tar, "manifest.json", json.dumps([{"Config": name, "RepoTags": [tag], "Layers": ["layer.tar"]}]).encode())
PY
}

kubeconfig() {
  cat >"$STATE/$1.kubeconfig" <<CONF
apiVersion: v1
kind: Config
current-context: test
clusters: [{name: test, cluster: {server: "https://$NET.0.1:$PORT", certificate-authority: pki/apiserver.crt}}]
users: [{name: $1, user: {token: "$2"}}]
contexts: [{name: test, context: {cluster: test, user: $1}}]
CONF
}

# run starts a program in a session of its own, and writes down its pid.
run() {
  local name=$1
  shift
  setsid "$@" >"$STATE/log/$name" 2>&1 &
  echo $! >"$STATE/pid/$name"
}

control() {
  local etcd=http://127.0.0.1:23790 peer=http://127.0.0.1:23800
  run etcd etcd --data-dir "$STATE/etcd" --listen-client-urls $etcd --advertise-client-urls $etcd \
    --listen-peer-urls $peer --initial-advertise-peer-urls $peer --initial-cluster default=$peer --unsafe-no-fsync
  run apiserver "$CACHE/bin/kube-apiserver" --etcd-servers=$etcd --bind-address=0.0.0.0 --secure-port=$PORT \
    --advertise-address="$NET.0.1" --cert-dir="$STATE/pki" --service-cluster-ip-range=10.96.0.0/16 \
    --service-account-issuer=https://recipe.test --service-account-key-file="$STATE/pki/sa.pub" \
    --service-account-signing-key-file="$STATE/pki/sa.key" --token-auth-file="$STATE/pki/tokens.csv" \
    --authorization-mode=Node,RBAC --allow-privileged=true --kubelet-preferred-address-types=InternalIP
  await "the API server" api /readyz
  if [ -x "$CACHE/bin/gang-scheduler" ]; then # before the controllers, which delete what belongs to nothing any more
    api /apis/apiextensions.k8s.io/v1/customresourcedefinitions --data-binary "@$CACHE/gangs/podgroups.yaml" >/dev/null
    await "PodGroups" api /apis/scheduling.x-k8s.io/v1alpha1/podgroups
  fi
  run controllers "$CACHE/bin/kube-controller-manager" --kubeconfig="$STATE/admin.kubeconfig" --leader-elect=false \
    --service-account-private-key-file="$STATE/pki/sa.key" --allocate-node-cidrs=false --secure-port=0 \
    --node-monitor-period=1s --node-monitor-grace-period=10s --controllers='*,-certificatesigningrequest-signing-controller'
  run scheduler "$CACHE/bin/kube-scheduler" --kubeconfig="$STATE/admin.kubeconfig" --leader-elect=false --secure-port=0
  [ ! -x "$CACHE/bin/gang-scheduler" ] || gang_scheduler
  await "the controllers" api /api/v1/namespaces/default/serviceaccounts/default
}

# gang_scheduler starts a second scheduler, for pods that name it.
gang_scheduler() {
  cat >"$STATE/gang-scheduler.yaml" <<CONF
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: $STATE/admin.kubeconfig}
profiles:
- schedulerName: scheduler-plugins-scheduler
  plugins:
    multiPoint: {enabled: [{name: Coscheduling}]}
    queueSort: {enabled: [{name: Coscheduling}], disabled: [{name: "*"}]}
CONF
  run gang-scheduler "$CACHE/bin/gang-scheduler" --config="$STATE/gang-scheduler.yaml" --secure-port=0
}

# api asks the API server as an administrator: PATH [option of curl…]
api() {
  local path=$1 type=
  shift
  [[ "$*" == *Content-Type* ]] || type='Content-Type: application/yaml'
  curl -s --fail-with-body --max-time 10 --cacert "$STATE/pki/apiserver.crt" "https://$NET.0.1:$PORT$path" \
    -H "Authorization: Bearer $(cut -d, -f1 "$STATE/pki/tokens.csv" | head -1)" ${type:+-H "$type"} "$@"
}

node_ready() { api "/api/v1/nodes/$1" | tr -d ' \n' | grep -q '"type":"Ready","status":"True"'; }

await() { # WHAT COMMAND…
  local what=$1
  shift
  for _ in $(seq 600); do "$@" >/dev/null 2>&1 && return; sleep 0.1; done
  echo "waited 60 seconds for $what: see $STATE/log" >&2
  return 1
}

# start starts the kubelet and the containerd of a node, in mounts and processes of their own: all end with the first.
start() {
  local n=$1 dir=$STATE/$1
  mkdir -p "$dir/cni"
  cat >"$dir/cni/10-pods.conflist" <<CONF
{"cniVersion": "0.4.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "ipam": {"type": "host-local",
   "dataDir": "$dir/ipam", "ranges": [[{"subnet": "$(pods "$n").0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
CONF
  cat >"$dir/containerd.toml" <<CONF
version = 2
root = "$dir/root"
state = "$dir/run"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs", "io.containerd.internal.v1.opt",
  "io.containerd.tracing.processor.v1.otlp"]
[grpc]
  address = "$dir/containerd.sock"
[ttrpc]
  address = "$dir/containerd.ttrpc"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$IMAGE"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    conf_dir = "$dir/cni"
    bin_dir = "/usr/lib/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
CONF
  cat >"$dir/kubelet.yaml" <<CONF
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
failSwapOn: false
failCgroupV1: false
localStorageCapacityIsolation: false
makeIPTablesUtilChains: false
containerRuntimeEndpoint: unix://$dir/containerd.sock
address: $(address "$n")
healthzBindAddress: 127.0.0.1
resolvConf: ""
evictionHard: {memory.available: "100Mi"}
nodeStatusUpdateFrequency: 2s
CONF
  run "node-$n" nsenter --net="/run/netns/recipe-kube-$n" \
    unshare --mount --uts --pid --fork --mount-proc --kill-child bash -c "
      hostname $n
      mount -t tmpfs tmpfs /run/netns # networks of pods end with the node, too
      containerd --config '$dir/containerd.toml' >'$STATE/log/containerd-$n' 2>&1 &
      for _ in \$(seq 300); do ctr -a '$dir/containerd.sock' version >/dev/null 2>&1 && break; sleep 0.1; done
      ctr -a '$dir/containerd.sock' -n k8s.io images import --digests=false '$STATE/image.tar'
      exec '$CACHE/bin/kubelet' --config '$dir/kubelet.yaml' --kubeconfig '$STATE/admin.kubeconfig' --root-dir '$dir/kubelet' \
        --cert-dir '$dir/pki' --hostname-override $n --node-ip $(address "$n") --node-labels pool=$n"
}

kill_node() {
  local pid
  pid=$(cat "$STATE/pid/node-$1" 2>/dev/null) || return 0
  pkill -KILL -P "$pid" 2>/dev/null || true # the first process of the node; the kernel ends the others with it
  kill -KILL "$pid" 2>/dev/null || true
}

down() {
  local n f
  for n in $NODES; do
    kill_node "$n"
    ip link del "vk-$n" 2>/dev/null || true
    ip netns del "recipe-kube-$n" 2>/dev/null || true
  done
  for f in "$STATE"/pid/*; do
    [ -s "$f" ] && kill "$(cat "$f")" 2>/dev/null || true
  done
  ip link del "$BRIDGE" 2>/dev/null || true
  for f in "$STATE"/pid/*; do
    [ -s "$f" ] || continue
    for _ in $(seq 100); do kill -0 "$(cat "$f")" 2>/dev/null || break; sleep 0.1; done
    kill -KILL "$(cat "$f")" 2>/dev/null || true
  done
  # Left by runc: cgroups of containers that were killed.
  find /sys/fs/cgroup -depth -type d -path '*/k8s.io*' -exec rmdir {} + 2>/dev/null || true
  rm -rf "$STATE"
}

case "${1:-}" in
  build) build ;;
  up) shift; up "$@" ;;
  down) down ;;
  api) shift; api "$@" ;;
  why) why ;;
  gangs) [ -x "$CACHE/bin/gang-scheduler" ] ;;
  kill) kill_node "$2" ;;
  start) start "$2" ;;
  *) sed -n '2,14s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
