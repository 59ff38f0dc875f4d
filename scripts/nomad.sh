#!/bin/bash
# A real Nomad agent on this machine, server and client, for tests: built from source, with tokens and the driver raw_exec.
#
#   scripts/nomad.sh build        build Nomad into the user's cache (6 minutes of one core; once)
#   scripts/nomad.sh up FOLDER    start it with its files in FOLDER; prints what to export
#   scripts/nomad.sh node FOLDER NAME [HIDDEN...]    add a node to it, which does not see the folders HIDDEN
#   scripts/nomad.sh drain|kill|remove FOLDER NAME    drain that node; kill everything on it, as a loss of power would;
#                                 the same, after which it gets no jobs until that is seen
#   scripts/nomad.sh admin FOLDER PATH [OPTION OF CURL...]    ask it as an administrator
#   scripts/nomad.sh down FOLDER  end it, and its nodes
#   scripts/nomad.sh why          says what is missing here, and nothing when nothing is
set -euo pipefail

VERSION=1.10.0
# What Nomad's go.mod replaces: its own ./api, which the module's archive lacks, and a parser of its configuration.
API=v0.0.0-20260907080526-08ef8f3d26da
HCL=v1.0.1-0.20201016140508-a07e7d50bbee
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/recipe-nomad/$VERSION

why() {
  [ "$(id -u)" = 0 ] || { echo "Nomad's client must be root"; return; }
  local program
  for program in curl python3; do
    command -v "$program" >/dev/null || { echo "$program is not installed"; return; }
  done
  [ -x "$CACHE/bin/nomad" ] || echo "Nomad is not built: scripts/nomad.sh build"
}

build() {
  local source=$CACHE/source
  [ -x "$CACHE/bin/nomad" ] && return
  mkdir -p "$source" "$CACHE/bin"
  cd "$source"
  if [ ! -s go.sum ]; then
    printf 'package tools\n\nimport _ "github.com/hashicorp/nomad/command"\n' >tools.go
    rm -f go.mod
    go mod init recipe.test/nomad
    go mod edit -require "github.com/hashicorp/nomad@v$VERSION" \
      -replace "github.com/hashicorp/nomad/api=github.com/hashicorp/nomad/api@$API" \
      -replace "github.com/hashicorp/hcl=github.com/hashicorp/hcl@$HCL"
    go mod tidy -e
  fi
  GOGC=400 nice -n 19 go build -p 1 -trimpath -ldflags '-s -w' -o "$CACHE/bin/nomad.new" github.com/hashicorp/nomad
  mv "$CACHE/bin/nomad.new" "$CACHE/bin/nomad"
}

# free prints free ports of this machine.
free() {
  python3 -c 'import socket, sys
sockets = [socket.socket() for _ in range(int(sys.argv[1]))]
for s in sockets: s.bind(("127.0.0.1", 0))
print(*(s.getsockname()[1] for s in sockets))' "$1"
}

# config prints the configuration of an agent: FOLDER NAME SERVER HTTP RPC SERF METADATA RPC-OF-THE-SERVER
config() {
  # A cloud's metadata service is not asked. Jobs that are over, and what they have printed, stay on the node although this
  # machine's disk is fuller than 80 %, as on an agent in -dev mode.
  cat <<CONFIG
name      = "$2"
bind_addr = "127.0.0.1"
advertise {
  http = "127.0.0.1"
  rpc  = "127.0.0.1"
  serf = "127.0.0.1"
}
data_dir  = "$1/data"
$3
ports {
  http = $4
  rpc  = $5
  serf = $6
}
acl { enabled = true }
client {
  enabled = true
  meta    = { $7 }
  servers = ["127.0.0.1:$8"]
  gc_disk_usage_threshold  = 99
  gc_inode_usage_threshold = 99
  options = { "fingerprint.denylist" = "env_aws,env_gce,env_azure,env_digitalocean" }
}
plugin "raw_exec" {
  config { enabled = true }
}
CONFIG
}

up() {
  local state=$1 http rpc serf
  read -r http rpc serf < <(free 3)
  local address=http://127.0.0.1:$http
  umask 077
  mkdir -p "$state"
  config "$state" vm "server { enabled = true }" "$http" "$rpc" "$serf" 'pool = "cpu"' "$rpc" >"$state/agent.hcl"
  echo "$rpc" >"$state/rpc"
  env -u AWS_CA_BUNDLE setsid "$CACHE/bin/nomad" agent -dev -config "$state/agent.hcl" >"$state/log" 2>&1 &
  echo $! >"$state/pid"
  local admin="" i
  for i in $(seq 120); do
    [ -n "$admin" ] || admin=$(curl -sf -X PUT "$address/v1/acl/bootstrap" | field SecretID || true)
    [ -n "$admin" ] && ask "$admin" "$address/v1/nodes" | grep -q '"Status":"ready"' && break
    kill -0 "$(cat "$state/pid")" || { tail -n 5 "$state/log" >&2; exit 1; }
    [ "$i" -lt 120 ] || { echo "Nomad was not ready within a minute; see $state/log" >&2; exit 1; }
    sleep .5
  done
  echo "$address $admin" >"$state/admin"
  # The rights of docs/clusters.md.
  local rules='namespace \"default\" { capabilities = [\"list-jobs\", \"read-job\", \"submit-job\", \"read-logs\"] '
  rules+='variables { path \"nomad/jobs/recipe-*\" { capabilities = [\"write\", \"destroy\"] } } }'
  ask "$admin" -X PUT "$address/v1/acl/policy/recipe" --data "{\"Name\": \"recipe\", \"Rules\": \"$rules\"}"
  local token
  token=$(ask "$admin" -X PUT "$address/v1/acl/token" --data '{"Type": "client", "Policies": ["recipe"]}' | field SecretID)
  printf 'NOMAD_ADDR=%s\nNOMAD_TOKEN=%s\n' "$address" "$token"
}

# node starts a client in mounts and processes of its own: all of them end with its first process.
node() {
  local state=$1 name=$2 http rpc serf
  shift 2
  read -r http rpc serf < <(free 3)
  AGENT=$(config "$state/$name" "$name" "" "$http" "$rpc" "$serf" "further = \"$name\"" "$(cat "$state/rpc")") \
    HIDDEN="$*" \
    setsid unshare --mount --pid --fork --mount-proc --kill-child bash -ec '
      for folder in $HIDDEN; do mount -t tmpfs tmpfs "$folder"; done
      rm -rf "$1"
      mkdir -p "$1"
      cd "$1"
      printf "%s\n" "$AGENT" >agent.hcl
      unset AWS_CA_BUNDLE
      exec "$2" agent -config agent.hcl' node "$state/$name" "$CACHE/bin/nomad" >"$state/$name.log" 2>&1 &
  echo $! >"$state/$name.pid"
  local i
  for i in $(seq 120); do
    id_of "$state" "$name" >/dev/null && return
    sleep .5
  done
  echo "node $name was not ready within a minute; see $state/$name.log" >&2
  return 1
}

# admin asks the agent in FOLDER as an administrator: PATH [OPTION OF CURL...]
admin() {
  local address token
  read -r address token <"$1/admin"
  ask "$token" "$address$2" "${@:3}"
}

# id_of prints the ID of a node that is ready.
id_of() {
  admin "$1" /v1/nodes | python3 -c 'import json, sys
found = [n["ID"] for n in json.load(sys.stdin) if n["Name"] == sys.argv[1] and n["Status"] == "ready"]
print(found[0])' "$2" 2>/dev/null
}

drain() {
  admin "$1" "/v1/node/$(id_of "$1" "$2")/drain" -X PUT \
    --data '{"DrainSpec": {"Deadline": -1, "IgnoreSystemJobs": true}}' >/dev/null
}

remove() {
  local id
  id=$(id_of "$1" "$2") && admin "$1" "/v1/node/$id/eligibility" -X PUT --data '{"Eligibility": "ineligible"}' >/dev/null
  kill_node "$@"
}

kill_node() { pkill -KILL -P "$(cat "$1/$2.pid")" || true; } # its first process; the kernel ends the others with it

# field reads a field of a JSON object.
field() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1" 2>/dev/null; }

ask() { curl -sf -H "X-Nomad-Token: $1" "${@:2}"; }

down() {
  local pid i
  for pid in "$1"/*.pid; do
    [ ! -s "$pid" ] || pkill -KILL -P "$(cat "$pid")" || true
  done
  pid=$(cat "$1/pid" 2>/dev/null) || return 0
  kill "$pid" 2>/dev/null || return 0
  for i in $(seq 60); do
    kill -0 "$pid" 2>/dev/null || return 0
    sleep .5
  done
  kill -9 "$pid"
}

case ${1:-} in
  build | why) "$1" ;;
  up | down) "$1" "${2:?name a folder}" ;;
  node | drain | remove | admin) "$@" ;;
  kill) kill_node "$2" "$3" ;;
  *) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
