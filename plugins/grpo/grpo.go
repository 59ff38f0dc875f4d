// Package grpo trains a policy by GRPO and its relatives. The mathematics is in worker, a Python package that it brings along; this
// side starts the worker, on one GPU or several, follows it, answers for its weights, and says in plain words why it failed.
package grpo

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/interpreter"
	"github.com/recipe-rl/recipe/sdk/proc"
	"github.com/recipe-rl/recipe/sdk/tail"
)

// Plugin defines `trainer "grpo"`.
func Plugin() *sdk.Definition {
	return sdk.NewTrainer("grpo", "Trains a model by GRPO in PyTorch",
		func() sdk.Trainer[Config] { return &Trainer{} },
		sdk.WithOutputs(Outputs{}),
		sdk.WithPackages(packages),
		sdk.WithEnvironmentVariables("HF_*", "HUGGING_FACE_HUB_TOKEN"),
		sdk.WithDoc("Trains a transformers model by GRPO and its relatives on the groups that environments send. Needs torch and transformers (and peft for LoRA) in its Python: runtime { python = … } or requirements."))
}

// Outputs is what the block gives.
type Outputs struct {
	sdk.TrainerOutputs
	Transports []string `recipe:"transports" doc:"How its weights can leave it"`
	Memory     string   `recipe:"memory" doc:"Where its weights lie in memory: gpu:UUID, or host:ID. A server that reaches it can copy them (transports live and ipc)"`
	Machine    string   `recipe:"machine" doc:"The machine that it runs on, until that is booted again: within one weights can be sent (transport nccl)"`
	Devices    []string `recipe:"devices" doc:"GPUs that it was placed on; empty: PyTorch has chosen"`
}

//go:embed worker/*.py
var workerSource embed.FS

// Trainer is one trainer block.
type Trainer struct {
	req  sdk.Request[Config]
	host sdk.TrainerHost

	mu      sync.Mutex
	control *control // nil until the worker listens
	asks    bool     // the worker asks for its turn before each batch
	config  Config

	outputs Outputs
	// published is set by Publish, so that the acknowledgement names what the worker published last.
	published int64
	rounded   bool // it was said that published weights are less precise
	// trouble says which groups of the batch troubled could not be used; the status shows it until another batch trains.
	trouble, troubled string
}

var (
	_ sdk.Trainer[Config]   = (*Trainer)(nil)
	_ sdk.Checkpointer      = (*Trainer)(nil)
	_ sdk.Tokenizing        = (*Trainer)(nil)
	_ sdk.Updater[Config]   = (*Trainer)(nil)
	_ sdk.Planner[Config]   = (*Trainer)(nil)
	_ sdk.Validator[Config] = (*Trainer)(nil)
)

// files are where worker and supervisor meet.
type files struct{ config, events, ready, source string }

const (
	listenTimeout = 5 * time.Minute // imports of torch on a busy machine
	stopShare     = 0.9             // of the grace period, for the worker's last checkpoint
)

// Run starts the worker and follows it to its end.
func (t *Trainer) Run(ctx context.Context, req sdk.Request[Config], host sdk.TrainerHost) error {
	t.req, t.host, t.config = req, host, req.Config
	// A worker of an earlier life may hold the GPU. It is not taken over: starting again from its last checkpoint is exact.
	if err := proc.KillAll(ctx, proc.Parse(req.Handle)); err != nil {
		host.Log("warn", err.Error())
	}
	python, err := interpreter.Find(req.Runtime, packages(interpreter.GPU()), req.RecipeDir, func(name string) string {
		if v, ok := req.Environment[name]; ok {
			return v
		}
		return os.Getenv(name)
	})
	if err != nil {
		return err
	}
	f, err := t.write()
	if err != nil {
		return err
	}
	if err := tail.SetAside(filepath.Join(req.Dir, "worker.log")); err != nil {
		host.Log("warn", err.Error())
	}
	host.Phase(sdk.Starting, "importing PyTorch")
	program, err := proc.Start(ctx, proc.Spec{
		Name: "worker", Argv: t.argv(python, f), Env: t.environ(f), Dir: req.RecipeDir, LogDir: req.Dir,
	})
	if err != nil {
		return &sdk.Error{Summary: "the trainer's worker could not be started", Err: err, Remedy: "runtime { python = … } must name an interpreter that can be run"}
	}
	host.SetHandle(proc.Encode(program.Handle()))
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
		defer cancel()
		if err := program.Stop(stop, time.Second); err != nil {
			host.Log("error", err.Error())
		}
	}()
	return t.follow(ctx, program, f)
}

// write puts the worker's source, its configuration and nothing else into the block's directory.
func (t *Trainer) write() (files, error) {
	dir := t.req.Dir
	f := files{config: filepath.Join(dir, "config.json"), events: filepath.Join(dir, "events.jsonl"), ready: filepath.Join(dir, "ready.json"), source: filepath.Join(dir, "python")}
	if err := extract(f.source); err != nil {
		return f, err
	}
	if err := os.Remove(f.ready); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return f, fmt.Errorf("remove the worker's old ready file: %w", err)
	}
	if err := os.WriteFile(f.events, nil, 0o600); err != nil {
		return f, fmt.Errorf("make the worker's event file: %w", err)
	}
	settings, err := t.settings(f)
	if err != nil {
		return f, err
	}
	data, err := json.MarshalIndent(settings, "", " ")
	if err != nil {
		return f, fmt.Errorf("write the worker's configuration: %w", err)
	}
	if err := os.WriteFile(f.config, append(data, '\n'), 0o600); err != nil { // it holds tokens
		return f, fmt.Errorf("write the worker's configuration: %w", err)
	}
	return f, nil
}

// extract writes the worker's source, anew each time: it belongs to this version of the plugin.
func extract(dir string) error {
	if err := os.RemoveAll(filepath.Join(dir, "worker")); err != nil {
		return fmt.Errorf("remove an older worker: %w", err)
	}
	if err := os.CopyFS(dir, workerSource); err != nil {
		return fmt.Errorf("write the worker: %w", err)
	}
	return nil
}

// gpus is over how many GPUs the run is spread; 0: none, or the one that the worker finds.
func (t *Trainer) gpus() int { return max(t.req.Placement.GPUs, len(t.req.Placement.Devices)) }

// argv starts one process, or one for each GPU.
func (t *Trainer) argv(python string, f files) []string {
	if n := t.gpus(); n > 1 {
		return []string{python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", strconv.Itoa(n), "-m", "worker", "--config", f.config}
	}
	return []string{python, "-m", "worker", "--config", f.config}
}

func (t *Trainer) environ(f files) []string {
	env := map[string]string{"PYTHONUNBUFFERED": "1", "TOKENIZERS_PARALLELISM": "false"}
	if t.req.Config.Threads > 0 {
		env["OMP_NUM_THREADS"] = strconv.FormatInt(t.req.Config.Threads, 10)
	}
	if len(t.req.Placement.Devices) > 0 {
		env["CUDA_VISIBLE_DEVICES"] = strings.Join(t.req.Placement.Devices, ",")
	}
	for name, value := range t.req.Config.Env {
		env[name] = value
	}
	for name, value := range t.req.Environment {
		env[name] = value
	}
	path := f.source
	if before, ok := env["PYTHONPATH"]; ok {
		path += string(os.PathListSeparator) + before
	} else if before := os.Getenv("PYTHONPATH"); before != "" {
		path += string(os.PathListSeparator) + before
	}
	env["PYTHONPATH"] = path
	out := make([]string, 0, len(env)+64)
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if _, replaced := env[name]; !replaced {
			out = append(out, entry)
		}
	}
	for name, value := range env {
		out = append(out, name+"="+value)
	}
	return out
}

// token is what the worker's control server demands: the same for each life of the block, and never written down but in the worker's
// configuration, which only its owner can read.
func (t *Trainer) token() string {
	mac := hmac.New(sha256.New, []byte(t.req.ControlToken))
	_, _ = mac.Write([]byte("grpo worker"))
	return hex.EncodeToString(mac.Sum(nil))[:32]
}

// transports are the ways in which this run's weights can leave it.
func (c Config) transports() []string {
	list := []string{"live", "ipc", "nccl", "reload", "restart"}
	if c.Lora != nil && c.Lora.Rank > 0 {
		list = append(list, "lora")
	}
	return list
}

// precision is that of published weights.
func (c Config) precision() string {
	switch {
	case c.PublishDtype != "":
		return c.PublishDtype
	case c.Compute != nil && c.Compute.Dtype != "":
		return c.Compute.Dtype
	}
	return "float32"
}
