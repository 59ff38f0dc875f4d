package script

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sourcegraph/jsonrpc2"

	"github.com/recipe-rl/recipe/internal/tail"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
	"github.com/recipe-rl/recipe/sdk/proc"
)

// worker is the Python process of a block and the connection with it.
type worker struct {
	program *proc.Program
	conn    *jsonrpc2.Conn
	log     func(level, message string)
	logged  sync.WaitGroup // the goroutine that follows what the process prints
	hello   chan *problem  // one element: nil when the environment could be imported
	failed  chan struct{}  // closed when the process has ended
	calls   atomic.Uint64
	cancel  context.CancelFunc
	dir     string // the block's folder
	slow    atomic.Pointer[string]

	mu          sync.Mutex
	rollouts    map[uint64]rollout
	lastRollout uint64
}

// workerName names the log file of the worker in the block's folder.
const workerName = "environment"

// startup bounds the imports of the worker when the engine does not.
const startup = 10 * time.Minute

// start starts the worker and waits until it has imported the environment.
func start(ctx context.Context, argv, env []string, dir, logDir string, host sdk.Host) (w *worker, err error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer func() { _ = theirs.Close() }()
	if err := tail.SetAside(filepath.Join(logDir, workerName+".log")); err != nil {
		host.Log("warn", err.Error())
	}
	program, err := proc.Start(ctx, proc.Spec{Name: workerName, Argv: argv, Env: env, Dir: dir, LogDir: logDir,
		Files: []*os.File{theirs}})
	if err != nil {
		_ = ours.Close()
		return nil, &sdk.Error{Summary: "the environment's Python process could not be started", Err: err,
			Remedy: "runtime { python = … } must name an interpreter that can be run"}
	}
	host.SetHandle(proc.Encode(program.Handle()))
	w = &worker{program: program, log: host.Log, hello: make(chan *problem, 1), failed: make(chan struct{}),
		rollouts: map[uint64]rollout{}, dir: logDir}
	following, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w.cancel = cancel
	w.conn = jsonrpc2.NewConn(following, jsonrpc2.NewPlainObjectStream(ours), w, jsonrpc2.SetLogger(quiet{}))
	w.logged.Go(func() {
		path := filepath.Join(logDir, workerName+".log")
		_ = tail.Follow(following, path, tail.Options{Done: program.Done()}, func(line []byte) {
			host.Log("info", string(line))
		})
	})
	w.logged.Go(func() { <-program.Done(); close(w.failed) })
	return w, w.imported(ctx)
}

// imported waits for the worker's first message.
func (w *worker) imported(ctx context.Context) error {
	limit := time.NewTimer(startup)
	defer limit.Stop()
	var err error
	select {
	case p := <-w.hello:
		if p == nil {
			return nil
		}
		err = p.asError("import the environment", "", sdk.Packages{})
	case <-w.failed:
		select {
		case p := <-w.hello: // it said why, and ended
			err = p.asError("import the environment", "", sdk.Packages{})
		default:
			err = w.Err()
		}
	case <-limit.C:
		err = &sdk.Error{Summary: fmt.Sprintf("importing the environment took longer than %s", startup),
			Remedy: "do what takes long in setup() instead of at the top of the file"}
	case <-ctx.Done():
		err = ctx.Err()
	}
	return errors.Join(err, w.stop(ctx, 0))
}

// quiet drops what jsonrpc2 would write to standard error.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

// Handle takes what the worker sends by itself. It implements jsonrpc2.Handler.
func (w *worker) Handle(_ context.Context, conn *jsonrpc2.Conn, r *jsonrpc2.Request) {
	if r.Params == nil {
		return
	}
	switch r.Method {
	case "hello":
		var body struct {
			Error *problem `json:"error"`
		}
		if json.Unmarshal(*r.Params, &body) == nil && len(w.hello) == 0 {
			w.hello <- body.Error
		}
	case "answer":
		go w.answer(conn, r) // it may take minutes, and ends with its rollout; others go on
	case "log":
		var body struct {
			Level   string `json:"level"`
			Message string `json:"message"`
		}
		if json.Unmarshal(*r.Params, &body) == nil {
			w.log(body.Level, body.Message)
		}
	case "waiting":
		var body struct {
			Text string `json:"text"`
		}
		if json.Unmarshal(*r.Params, &body) == nil {
			w.slow.Store(&body.Text)
		}
	}
}

// Waiting is which call of the author's code takes long; empty: none does.
func (w *worker) Waiting() string {
	if text := w.slow.Load(); text != nil {
		return *text
	}
	return ""
}

// call asks the worker. When the context ends first, the worker is told to give up.
func (w *worker) call(ctx context.Context, method string, params, result any) error {
	id := w.calls.Add(1)
	err := w.conn.Call(ctx, method, params, result, jsonrpc2.PickID(jsonrpc2.ID{Num: id}))
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		_ = w.conn.Notify(context.WithoutCancel(ctx), "cancel", map[string]uint64{"id": id})
		return ctx.Err()
	case errors.Is(err, jsonrpc2.ErrClosed), proc.BrokenOff(err):
		return w.gone(ctx)
	}
	return err
}

// gone is the error of a call that found the connection broken. The process is about to end: how it did says more.
func (w *worker) gone(ctx context.Context) error {
	select {
	case <-w.failed:
		return w.Err()
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(lastWords):
		return errBroken
	}
}

// lastWords is how long a process that has broken the connection off may take to end.
const lastWords = 5 * time.Second

var errBroken = errors.New("the environment's Python process has closed its connection, and runs on")

// Failed is closed when the process has ended.
func (w *worker) Failed() <-chan struct{} { return w.failed }

// Err describes how the process ended.
func (w *worker) Err() error {
	// No remedy: what ends a process may not happen again, and an error with one is final before the block is ready.
	summary := "the environment's Python process has ended (its output is in " + workerName + ".log of the block's folder)"
	return &sdk.Error{Summary: summary, Err: w.program.Err(), Detail: w.program.Tail(20)}
}

// stop ends the process, which gets the grace to end by itself.
func (w *worker) stop(ctx context.Context, grace time.Duration) error {
	defer interpreter.ForgetBytecode(w.dir)
	_ = w.conn.Close() // the process ends when its socket does
	select {
	case <-w.program.Done():
	case <-time.After(grace):
	}
	err := w.program.Stop(context.WithoutCancel(ctx), 0)
	w.logged.Wait()
	w.cancel()
	<-w.conn.DisconnectNotify()
	return err
}

// socketPair makes two connected sockets: one for this process, and one that a program inherits.
func socketPair() (ours net.Conn, theirs *os.File, err error) {
	syscall.ForkLock.RLock()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(pair[0])
		syscall.CloseOnExec(pair[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, fmt.Errorf("make a socket for the environment's Python process: %w", err)
	}
	file := os.NewFile(uintptr(pair[0]), "environment")
	ours, err = net.FileConn(file) // a copy
	_ = file.Close()
	theirs = os.NewFile(uintptr(pair[1]), "environment")
	if err != nil {
		_ = theirs.Close()
		return nil, nil, fmt.Errorf("make a socket for the environment's Python process: %w", err)
	}
	return ours, theirs, nil
}
