package vllm

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/inference"
	"github.com/recipe-rl/recipe/sdk/proc"
	"github.com/recipe-rl/recipe/sdk/tail"
)

// replica is one vLLM server. Fields below the line are guarded by Server.mu; the rest belongs to keep's goroutine.
type replica struct {
	server  *Server
	id      string
	index   int
	adopt   proc.Handle // program of an earlier life to take over; PID 0: none
	restart chan struct{}

	handle  proc.Handle
	client  *client // of the server that runs, or of the one that is about to
	offers  offers
	next    int                  // port of the server that is about to start; 0: not chosen yet
	live    bool                 // answers, and serves version
	stays   bool                 // the next server listens where this one does
	parked  bool                 // waits to be started until the others wake
	nap     inference.SleepLevel // how deep it sleeps; 0: awake
	version int64                // of its weights
}

func newReplica(s *Server, index int) *replica {
	return &replica{server: s, id: strconv.Itoa(index), index: index, restart: make(chan struct{}, 1)}
}

const (
	healthEvery   = 5 * time.Second  // between two looks at a server that runs
	healthTimeout = 20 * time.Second // of one look; a server that loads weights answers late
	healthMisses  = 6                // looks in a row that fail before a server counts as dead
	settled       = 10 * time.Minute // after which a server starts with a full count of restarts
	stopGrace     = 15 * time.Second // from SIGTERM to SIGKILL, at most
)

// errAsked ends a server that is to be started again.
var errAsked = errors.New("a restart was asked for")

// keep runs the server again and again until the context ends or its restarts are used up.
func (r *replica) keep(ctx context.Context) error {
	var failures int64
	for {
		if err := r.awaitAwake(ctx); err != nil {
			return err
		}
		started := time.Now()
		err := r.life(ctx)
		r.down()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, errAsked) {
			continue
		}
		if time.Since(started) > settled {
			failures = 0
		}
		failures++
		limit := r.server.limits().MaxRestarts
		if failures > limit || hopeless(err) {
			return fmt.Errorf("vLLM replica %s: %w", r.id, err)
		}
		wait := min(time.Second<<failures, 30*time.Second)
		r.server.host.Log("error", fmt.Sprintf("replica %s: %v", r.id, err))
		r.server.host.Phase(sdk.Starting, fmt.Sprintf("replica %s ended, starting it again in %s (%d of %d): %s", r.id, wait, failures, limit, firstLine(err)))
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

// life is one life of the server, from its start to its end, which is always an error. Nothing of it is left afterwards.
func (r *replica) life(ctx context.Context) error {
	program, port, adopted, err := r.begin(ctx)
	if err != nil {
		return err
	}
	// Not the block's context: what has been started is stopped whatever ends first.
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace+10*time.Second)
		defer cancel()
		if stopErr := program.Stop(stop, min(stopGrace, r.server.host.Grace()/2)); stopErr != nil {
			r.server.host.Log("error", stopErr.Error())
		}
	}()
	c := r.setProgram(program.Handle(), port)
	defer c.close()

	following, endFollowing := context.WithCancel(ctx)
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		r.follow(following, program, adopted)
	}()
	defer func() { endFollowing(); <-followed }()

	if adopted {
		if err := r.rouse(ctx, c); err != nil {
			return err
		}
	}
	if err := r.awaitAnswer(ctx, program, c); err != nil {
		return err
	}
	if err := r.install(ctx, c, adopted); err != nil {
		return err
	}
	r.server.notify()
	return r.watch(ctx, program, c)
}

// begin takes over the program of an earlier life, or starts one.
func (r *replica) begin(ctx context.Context) (program *proc.Program, port int, adopted bool, err error) {
	select {
	case <-r.restart: // asked of the life before
	default:
	}
	if h := r.adopt; h.PID != 0 {
		r.adopt = proc.Handle{}
		if program, err = proc.Adopt(h); err == nil {
			r.server.host.Log("info", fmt.Sprintf("replica %s: found the running server again (pid %d)", r.id, h.PID))
			return program, h.Ports[0], true, nil
		}
	}
	if port, err = r.reserve(); err != nil {
		return nil, 0, false, err
	}
	l := r.launch(port)
	args, err := l.arguments()
	if err != nil {
		return nil, 0, false, err
	}
	if err := tail.SetAside(filepath.Join(r.server.req.Dir, "vllm-"+r.id+".log")); err != nil {
		r.server.host.Log("warn", err.Error())
	}
	r.server.host.Phase(sdk.Starting, "starting vLLM")
	r.server.host.Log("info", fmt.Sprintf("replica %s: %s %s", r.id, r.server.python, strings.Join(args, " ")))
	program, err = proc.Start(ctx, proc.Spec{
		Name: "vllm-" + r.id, Argv: append([]string{r.server.python}, args...), Env: l.environ(os.Environ()),
		Dir: r.server.req.Dir, LogDir: r.server.req.Dir, Ports: []int{port}, Data: r.fingerprint(),
	})
	if err != nil {
		return nil, 0, false, &sdk.Error{Summary: "vLLM could not be started", Err: err, Remedy: "runtime { python = … } must name an interpreter that can be run"}
	}
	return program, port, false, nil
}

// launch describes the next start.
func (r *replica) launch(port int) launch {
	s := r.server
	s.mu.Lock()
	current := s.current
	s.mu.Unlock()
	l := launch{
		Config: s.req.Config, Model: resolve(s.req.Config.Model, s.req.RecipeDir), Tokenizer: resolve(s.req.Config.Tokenizer, s.req.RecipeDir),
		ChatTemplate: s.template, Port: port, Devices: r.visible(), Extension: s.extension, APIKey: r.key(), Environment: s.req.Environment,
	}
	if s.bakes(current) {
		if l.Tokenizer == "" {
			l.Tokenizer = l.Model // a checkpoint need not bring one
		}
		l.Model = current.Path
	}
	return l
}

// bakes says whether weights reach a server as the model that it starts with, instead of being loaded once it is up. Loading
// them is the rule: it is the very way that a sync takes, so precision and settings stay those of the base model.
func (s *Server) bakes(w sdk.Weights) bool {
	return w.Path != "" && w.Format != "lora" && (w.Transport == "restart" || s.req.Config.Quantization != "")
}

// devices are the GPUs of this replica out of those of the block; nil leaves the choice to vLLM.
func (r *replica) devices() []string {
	n := r.server.req.Config.gpusPerReplica()
	all := r.server.req.Placement.Devices
	if len(all) < n {
		return nil
	}
	from := (r.index * n) % len(all)
	if from+n > len(all) { // more replicas than GPUs: they share
		from = 0
	}
	return all[from : from+n]
}

// visible is devices, and those that it may copy weights from: vLLM takes the first ones for itself.
func (r *replica) visible() []string {
	own := r.devices()
	if own == nil {
		return nil
	}
	for _, d := range r.server.req.Config.PeerDevices {
		if !slices.Contains(own, d) {
			own = append(slices.Clone(own), d)
		}
	}
	return own
}

// key is the server's API key: the same in every life of the block, so that a server can be taken over, and never written down.
func (r *replica) key() string {
	mac := hmac.New(sha256.New, []byte(r.server.req.ControlToken))
	_, _ = mac.Write([]byte("vllm " + r.id))
	return hex.EncodeToString(mac.Sum(nil))[:32]
}

// fingerprint tells whether a running server was started the way that this block would start it.
func (r *replica) fingerprint() string {
	l := r.launch(0)
	l.Model = resolve(r.server.req.Config.Model, r.server.req.RecipeDir)
	args, _ := l.arguments()
	sum := sha256.Sum256([]byte(r.id + "\x00" + r.server.python + "\x00" + strings.Join(args, "\x00") + "\x00" + strings.Join(l.environ(nil), "\x00")))
	return hex.EncodeToString(sum[:8])
}

// claim says whether the program of an earlier life is this replica's and can go on.
func (r *replica) claim(h proc.Handle) bool {
	if r.adopt.PID != 0 || len(h.Ports) != 1 || h.Data != r.fingerprint() || !h.Alive() {
		return false
	}
	r.adopt = h
	return true
}

// reserve chooses where the next server will listen, unless that is known already: a weight update that comes while the server is
// being started waits for it there, instead of finding nobody.
func (r *replica) reserve() (int, error) {
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	if r.next == 0 {
		port, err := freePort()
		if err != nil {
			return 0, err
		}
		r.next, r.client = port, r.newClient(port)
	}
	return r.next, nil
}

func (r *replica) newClient(port int) *client {
	c := newClient(port, r.key(), r.server.req.Config.servedName())
	c.warn = func(message string) { r.server.host.Log("warn", fmt.Sprintf("replica %s: %s", r.id, message)) }
	return c
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port on loopback: %w", err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// follow reads the log: stages of the start become phases, warnings and errors become events.
func (r *replica) follow(ctx context.Context, program *proc.Program, adopted bool) {
	h := program.Handle()
	o := tail.Options{Done: program.Done()}
	if info, err := os.Stat(h.Log); err == nil && adopted {
		o.From = info.Size()
	}
	host := r.server.host
	last := ""
	said := repeated{}
	err := tail.Follow(ctx, h.Log, o, func(raw []byte) {
		line := string(raw)
		if level, text, ok := worthTelling(line); ok {
			if text, ok = said.tell(text); ok {
				host.Log(level, text)
			}
		}
		s, ok := stageOf(line)
		if !ok || r.isLive() {
			return
		}
		if s.total > 0 {
			host.Progress(s.done, s.total, s.message)
		}
		if s.message != last {
			host.Phase(s.phase, s.message)
			last = s.message
		}
	})
	if err != nil && ctx.Err() == nil {
		host.Log("warn", err.Error())
	}
}

// firstLine is an error in one line, for a phase.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
