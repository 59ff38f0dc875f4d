// Package worker runs a trainer whose learning is a Python program: PyTorch's GRPO of plugins/grpo, and any other
// trainer that speaks docs/trainer-protocol.md through the Python package of this SDK.
//
// A plugin says in a Program what to run. This package starts the program on one GPU or several, turns its events into
// what the engine shows, publishes and verifies its weights, passes live settings on, and explains why it ended.
package worker

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/recipe-rl/recipe/internal/diskwait"
	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/internal/tail"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
	"github.com/recipe-rl/recipe/sdk/kit/nodes"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/proc"
	pythonsdk "github.com/recipe-rl/recipe/sdk/python"
	"github.com/recipe-rl/recipe/sdk/spec"
	"github.com/recipe-rl/recipe/sdk/trainer"
	"github.com/recipe-rl/recipe/sdk/transport"
)

// Program describes what a trainer block runs and with which settings.
type Program struct {
	// Module is run as `python -m Module --config FILE`.
	Module string
	// Source holds the Python packages that come with the plugin; they are written into the block's directory and put on
	// PYTHONPATH.
	Source []fs.FS
	// Packages finds the interpreter that `recipe init` has made for the plugin.
	Packages sdk.Packages
	// Environment holds further variables; those of the block come on top.
	Environment map[string]string

	Model string
	// Settings is the program's configuration, as JSON. The kit adds where batches come from, the folders, and how to
	// reach it.
	Settings map[string]any
	// Defaults are what Settings are when the recipe does not set them, so that one that is taken out of a live recipe
	// goes back.
	Defaults map[string]any
	// Known are further settings that may be known only when the block is started; nil: there are none.
	Known func() (map[string]any, error)
	// Trajectories is where the batches come from.
	Trajectories *spec.Ref

	// Transports are the ways in which the weights can leave the program: live, ipc, nccl, reload, restart, lora.
	Transports []transport.Name
	// Corrects says how training corrects for tokens that an older policy version sampled; empty: it does not, or it
	// trains on none. Only where it does may answers go on while new weights come without being asked for.
	Corrects string
	// PublishDtype is the precision of published weights; empty: that of training.
	PublishDtype string
	// UntieEmbeddings publishes the output head of a tied model as a tensor of its own (transports reload and restart).
	UntieEmbeddings bool

	// Symptoms explain failures that the program cannot report itself. They come before the kit's own.
	Symptoms []Symptom
}

// Outputs is what a trainer block of this kit gives.
type Outputs struct {
	outputs.Trainer
	Transports []string `recipe:"transports" doc:"How its weights can leave it"`
	Memory     string   `recipe:"memory" doc:"Where its weights lie in memory: gpu:UUID, or host:ID. A server that reaches it can copy them (transports live and ipc)"`
	Machine    string   `recipe:"machine" doc:"The machine that it runs on, until that is booted again: within one weights can be sent (transport nccl)"`
	Arithmetic string   `recipe:"arithmetic" doc:"Precision in which it computes; empty: not known"`
	Corrects   string   `recipe:"corrects" doc:"How it corrects for tokens that an older policy version sampled; empty: it does not, or trains on none"`
	Devices    []string `recipe:"devices" doc:"GPUs that it was placed on; empty: PyTorch has chosen"`
}

// Trainer is one trainer block. A plugin embeds it and adds what is its own, such as Plan and Validate.
type Trainer[C any] struct {
	describe func(sdk.Request[C]) (Program, error)

	req     sdk.Request[C]
	program Program
	host    trainer.Host

	stage *stage[C]      // nil: nothing was prepared, or Run has taken it over
	late  map[string]any // settings that a prepared worker gets when it asks to be started

	mu   sync.Mutex
	link *link          // nil while no worker runs
	sent map[string]any // settings last sent to the worker

	outputs Outputs
	rounded bool // it was said that published weights are less precise
	// trouble says which groups of the batch troubled could not be used; the status shows it until another batch trains.
	trouble, troubled string
}

// New makes a trainer. Describe says what to run; it is asked again when the recipe changes settings of a block that
// runs.
func New[C any](describe func(sdk.Request[C]) (Program, error)) Trainer[C] {
	return Trainer[C]{describe: describe}
}

const (
	connectTimeout = 5 * time.Minute // imports of torch on a busy machine
	stopShare      = 0.9             // of the grace period, for the worker's last checkpoint
)

// Run starts the worker and follows it to its end.
func (t *Trainer[C]) Run(ctx context.Context, req sdk.Request[C], host trainer.Host) (err error) {
	t.req, t.host = req, host
	if t.program, err = t.describe(req); err != nil {
		return err
	}
	s, err := t.takeOver(ctx)
	if err != nil {
		return err
	}
	if s == nil {
		known, err := t.known()
		if err != nil {
			return err
		}
		p, err := t.launch(ctx, known)
		if err != nil {
			return err
		}
		s = &stage[C]{process: p, watch: newWatch(t)}
	}
	defer interpreter.ForgetBytecode(t.req.Dir)
	defer s.process.end(ctx, host)
	return t.follow(ctx, s)
}

// launch starts the program, with settings besides those that it always has.
func (t *Trainer[C]) launch(ctx context.Context, more map[string]any) (p process, err error) {
	// A worker of an earlier attempt may hold the GPU. It is not taken over: starting again from its last checkpoint is
	// exact.
	if err := proc.KillAll(ctx, proc.Parse(t.req.Handle)); err != nil {
		t.host.Log("warn", err.Error())
	}
	python, err := t.interpreter()
	if err != nil {
		return p, err
	}
	if p.link, err = listen(ctx, t.token()); err != nil {
		return p, err
	}
	defer func() {
		if err != nil {
			p.link.close()
		}
	}()
	p.settings, p.argv, p.env = t.settings(p.link), t.argv(python), t.environ(python)
	slices.Sort(p.env)
	if err := diskwait.Await(ctx, t.host, sdk.Loading, t.req.Dir, func() error {
		return t.write(p.settings, more)
	}); err != nil {
		return p, err
	}
	if err := tail.SetAside(filepath.Join(t.req.Dir, "worker.log")); err != nil {
		t.host.Log("warn", err.Error())
	}
	t.host.Phase(sdk.Starting, "importing PyTorch")
	commands, err := onNodes(p.argv)
	if err != nil {
		return p, err
	}
	var handles []proc.Handle
	for n, argv := range commands {
		program, err := proc.Start(ctx, proc.Spec{
			Name: nameOn(n), Argv: argv, Env: p.env, Dir: t.req.RecipeDir, LogDir: t.req.Dir,
		})
		if err != nil {
			return p, errors.Join(&sdk.Error{Summary: "the trainer's worker could not be started", Err: err,
				Remedy: "runtime { python = … } must name an interpreter that can be run"}, proc.KillAll(ctx, handles))
		}
		if handles = append(handles, program.Handle()); n == 0 {
			p.program = program
		} else {
			p.others = append(p.others, program)
		}
	}
	t.host.SetHandle(proc.Encode(handles...))
	return p, nil
}

func (t *Trainer[C]) interpreter() (string, error) {
	return interpreter.Find(t.req.Runtime, t.program.Packages, t.req.RecipeDir, func(name string) string {
		if v, ok := t.req.Environment[name]; ok {
			return v
		}
		return os.Getenv(name)
	})
}

// Where the program finds its configuration and its source, in the block's directory.
func (t *Trainer[C]) configFile() string { return filepath.Join(t.req.Dir, "config.json") }
func (t *Trainer[C]) sourceDir() string  { return filepath.Join(t.req.Dir, "python") }

// meetingFile is where torchrun and the ranks of one machine find each other; a store on TCP is open to all users.
func (t *Trainer[C]) meetingFile() string { return filepath.Join(t.req.Dir, "ranks.torchrun") }

// ranksFile names the file through which the ranks find each other (recipe_sdk.ranks); torchrun has one of its own.
const ranksFile = "RECIPE_RANKS_FILE"

// forget removes both files: what an earlier attempt has left there is of processes that have gone.
func (t *Trainer[C]) forget() error {
	for _, path := range []string{t.meetingFile(), t.meetingFile() + ".ranks"} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove what an earlier worker has left: %w", err)
		}
	}
	return nil
}

// write puts the worker's source, its configuration and nothing else into the block's directory.
func (t *Trainer[C]) write(settings, more map[string]any) error {
	if err := errors.Join(extract(t.sourceDir(), t.program.Source), t.forget()); err != nil {
		return err
	}
	data, err := json.MarshalIndent(merged(settings, more), "", " ")
	if err != nil {
		return fmt.Errorf("write the worker's configuration: %w", err)
	}
	if err := regular.WriteFile(t.configFile(), append(data, '\n')); err != nil { // it holds tokens
		return fmt.Errorf("write the worker's configuration: %w", err)
	}
	return nil
}

// extract writes the program's source and recipe_sdk, on which it stands, anew each time: both belong to this version
// of the plugin.
func extract(dir string, source []fs.FS) error {
	return pythonsdk.WriteTree(dir, append(slices.Clone(source), pythonsdk.Source())...)
}

// gpus is over how many GPUs the run is spread; 0: none, or the one that the worker finds.
func (t *Trainer[C]) gpus() int { return max(t.req.Placement.GPUs, len(t.req.Placement.Devices)) }

// argv starts one process, or one for each GPU. On several machines more is to be added for each: see onNodes.
func (t *Trainer[C]) argv(python string) []string {
	program := []string{"-m", t.program.Module, "--config", t.configFile()}
	n, machines := t.gpus(), len(nodes.Addresses())
	torchrun := []string{python, "-m", "torch.distributed.run", "--nproc-per-node", strconv.Itoa(max(n, 1))}
	switch {
	case machines > 1:
		return slices.Concat(torchrun, []string{"--nnodes", strconv.Itoa(machines)}, program)
	case n > 1:
		// Not --standalone: its store listens on all interfaces, and what anyone writes there is unpickled.
		return slices.Concat(torchrun, []string{"--nnodes", "1", "--rdzv-backend", "c10d", "--rdzv-conf", "store_type=file",
			"--rdzv-endpoint", t.meetingFile(), "--rdzv-id", "worker"}, program)
	}
	return append([]string{python}, program...)
}

func (t *Trainer[C]) environ(python string) []string {
	env := map[string]string{"PYTHONUNBUFFERED": "1", "TOKENIZERS_PARALLELISM": "false"}
	if os.Getenv(compiledVariable) == "" {
		env[compiledVariable] = compiledFolder(t.req.Dir)
	}
	if own := nodes.Address(); own != "" { // inference may be on another machine
		env[weightsAddress] = own
	}
	if t.gpus() > 1 && len(nodes.Addresses()) < 2 {
		env[ranksFile], env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = t.meetingFile()+".ranks", "1"
		if runtime.GOOS == "linux" && os.Getenv("GLOO_SOCKET_IFNAME") == "" {
			env["GLOO_SOCKET_IFNAME"] = "lo"
		}
	}
	if len(t.req.Placement.Devices) > 0 {
		env["CUDA_VISIBLE_DEVICES"] = strings.Join(t.req.Placement.Devices, ",")
	}
	for name, value := range t.program.Environment {
		env[name] = value
	}
	for name, value := range t.req.Environment {
		env[name] = value
	}
	path := t.sourceDir()
	if before, ok := env["PYTHONPATH"]; ok {
		path += string(os.PathListSeparator) + before
	} else if before := os.Getenv("PYTHONPATH"); before != "" {
		path += string(os.PathListSeparator) + before
	}
	env["PYTHONPATH"] = path
	all := os.Environ()
	for name, value := range env {
		all = append(all, name+"="+value)
	}
	for name, value := range interpreter.Bytecode(python, all) {
		if _, own := t.req.Environment[name]; !own {
			env[name] = value
		}
	}
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

// compiledVariable names the folder in which torch keeps what it has compiled, which it runs.
const compiledVariable = "TORCHINDUCTOR_CACHE_DIR"

// compiledFolder is below the user's cache, where it survives runs, or below the block's folder, where a home is
// read-only. Torch's own default has the user's name, in the temporary folder: another user may have made it.
func compiledFolder(own string) string {
	if cache, err := os.UserCacheDir(); err == nil {
		folder := filepath.Join(cache, "recipe", "torch")
		if os.MkdirAll(folder, 0o755) == nil && unix.Access(folder, unix.W_OK) == nil {
			return folder
		}
	}
	return filepath.Join(own, "compiled")
}

// weightsAddress is where receivers of weights connect by transport nccl (recipe_sdk.nccl); loopback if it is not set.
const weightsAddress = "RECIPE_WEIGHTS_ADDRESS"

// token is what the worker says hello with. It is written down nowhere but in the worker's configuration, which only
// its owner can read.
func (t *Trainer[C]) token() string {
	mac := hmac.New(sha256.New, []byte(t.req.ControlToken))
	_, _ = mac.Write([]byte("worker"))
	return hex.EncodeToString(mac.Sum(nil))[:32]
}
