package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	nomad "github.com/hashicorp/nomad/api"

	"github.com/recipe-rl/recipe/sdk/executor"
)

const (
	// task is the name of a job's one task, and of its one group.
	task = "agent"
	// keyMeta is the name of a job's metadata with its key.
	keyMeta = "recipe-key"
	// script starts a program in a folder, with its input and the GPUs that Nomad's device plugin has given to the task.
	script = `[ -z "$NVIDIA_VISIBLE_DEVICES" ] || export CUDA_VISIBLE_DEVICES="$NVIDIA_VISIBLE_DEVICES"
[ ! -e "$NOMAD_SECRETS_DIR/input" ] || exec <"$NOMAD_SECRETS_DIR/input"
cd "$0" && exec "$@"`
)

// object is a JSON object of Nomad's API, whose durations are in nanoseconds.
type object = map[string]any

// prefix is how the names of a run's jobs begin.
func prefix(run string) string { return "recipe-" + digest(run)[:12] + "-" }

// name is that of a job.
func name(k executor.Key) string { return prefix(k.Run) + digest(k.String())[:16] }

// variable is the path of the Nomad variable with a job's input, which only that job may read.
func variable(k executor.Key) string { return "nomad/jobs/" + name(k) }

func digest(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

// job is a job as Nomad's API takes it. The engine starts blocks again, in new jobs: Nomad must not, not even when a
// node is lost.
func (c *cluster) job(j executor.Job) object {
	// Its notice is what a program gets to end in order when its node is drained. A node gives it no more than its
	// max_kill_timeout, which is 30s unless it is set.
	t := object{"Name": task, "Driver": c.config.Driver, "User": c.config.User, "KillSignal": "SIGTERM",
		"KillTimeout": j.Notice(), "Config": object{"command": "/bin/sh", "args": arguments(j)},
		"Resources": c.resources(j.Resources)}
	if j.Nodes > 1 {
		t["Env"] = object{executor.NodeVariable: "${NOMAD_ALLOC_INDEX}"}
	}
	if j.Input != "" {
		t["Templates"] = []any{object{"DestPath": "secrets/input", "ChangeMode": "noop",
			"EmbeddedTmpl": `{{ with nomadVar "` + variable(j.Key) + `" }}{{ .input }}{{ end }}`}}
	}
	never := object{"Attempts": 0, "Unlimited": false}
	group := object{"Name": task, "Count": max(j.Nodes, 1), "Tasks": []any{t}, "ReschedulePolicy": never,
		"RestartPolicy": object{"Attempts": 0, "Mode": "fail"}, "Disconnect": object{"Replace": false}}
	job := object{"ID": name(j.Key), "Name": "recipe " + j.Block, "Type": "batch", "Priority": c.config.Priority,
		"Datacenters": []string{"*"}, "Meta": object{keyMeta: j.Key.String()}, "Constraints": constraints(j.Resources),
		"TaskGroups": []any{group}}
	if len(c.config.Datacenters) > 0 {
		job["Datacenters"] = c.config.Datacenters
	}
	if c.config.NodePool != "" {
		job["NodePool"] = c.config.NodePool
	}
	return job
}

// arguments are those of the shell. What looks like a variable of Nomad is kept as it is.
func arguments(j executor.Job) []string {
	argv := j.Argv
	if limit := j.TimeLimit; limit > 0 {
		before := min(j.Notice(), limit/2)
		argv = append([]string{"timeout", "--kill-after=" + seconds(before), seconds(limit - before)}, argv...)
	}
	args := append([]string{"-c", script, cmp.Or(j.Dir, "/")}, argv...)
	for i, a := range args {
		args[i] = strings.NewReplacer("${", "$${", "%{", "%%{").Replace(a)
	}
	return args
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }

func (c *cluster) resources(r executor.Resources) object {
	out := object{}
	if r.CPUs > 0 {
		out["Cores"] = r.CPUs
	}
	if r.Memory > 0 {
		out["MemoryMB"] = (r.Memory + 1<<20 - 1) >> 20
	}
	if r.GPUs > 0 {
		out["Devices"] = []any{object{"Name": c.config.GPUDevice, "Count": r.GPUs}}
	}
	return out
}

// constraints are those of a placement: the name of a node, and KEY=VALUE or KEY of its metadata. A key with a dot is
// an attribute, such as attr.cpu.arch or node.class.
func constraints(r executor.Resources) []any {
	list := []any{}
	if r.Host != "" {
		list = append(list, object{"LTarget": "${node.unique.name}", "Operand": "=", "RTarget": r.Host})
	}
	for _, text := range r.Constraints {
		key, value, has := strings.Cut(text, "=")
		if !strings.Contains(key, ".") {
			key = "meta." + key
		}
		operand := "is_set"
		if has {
			operand = "="
		}
		list = append(list, object{"LTarget": "${" + key + "}", "Operand": operand, "RTarget": value})
	}
	if r.Nodes > 1 {
		list = append(list, object{"Operand": nomad.ConstraintDistinctHosts})
	}
	return list
}

// Render implements executor.Executor.
func (c *cluster) Render(j executor.Job) (executor.Request, error) {
	if len(j.Argv) == 0 {
		return executor.Request{}, fmt.Errorf("job %s has no command", j.Key)
	}
	var text strings.Builder
	to := json.NewEncoder(&text)
	to.SetEscapeHTML(false)
	to.SetIndent("", "  ")
	err := to.Encode(object{"Job": c.job(j)})
	return executor.Request{Language: "json", Text: text.String()}, err
}
