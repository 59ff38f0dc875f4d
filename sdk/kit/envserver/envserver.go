// Package envserver reaches the server of an environment: one that runs anywhere, or a program that is started beside
// the block, watched, started again when it dies, and ended with the block.
package envserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/internal/lazyregexp"
	"github.com/recipe-rl/recipe/internal/peer"
	"github.com/recipe-rl/recipe/internal/redact"
	"github.com/recipe-rl/recipe/internal/temporary"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/internal/loopback"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
	"github.com/recipe-rl/recipe/sdk/proc"
	"github.com/recipe-rl/recipe/sdk/proxy"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Location says where the server is. A plugin's configuration struct embeds them.
type Location struct {
	BaseURL      string        `recipe:"base_url" doc:"Where the environment's server runs: http://host:port"`
	Command      []string      `recipe:"command" doc:"Start the server beside the block instead of base_url: program and arguments. {socket} stands for the path of the Unix socket at which it must listen, {port} for a port on 127.0.0.1, where every user of the machine can ask the server; the program python is that of runtime. Its output is in the block's logs"`
	CommandDir   string        `recipe:"command_dir" doc:"Folder in which command runs. Default: the recipe's"`
	StartTimeout time.Duration `recipe:"start_timeout" default:"2m" min:"1s" doc:"How long the server may take until it answers"`
}

// Problems finds what the schema cannot express.
func (s Location) Problems() []spec.Problem {
	words := strings.Join(s.Command, " ")
	if strings.Contains(words, "{socket}") && strings.Contains(words, "{port}") {
		return []spec.Problem{{Summary: "{socket} or {port}, not both", Detail: "The server listens at one of them."}}
	}
	if s.BaseURL != "" && len(s.Command) > 0 {
		return []spec.Problem{{Summary: "base_url or command, not both", Detail: "base_url names a server that runs " +
			"already, command starts one beside the block."}}
	}
	if strings.Contains(words, "{port}") {
		return []spec.Problem{{Warning: true, Path: cty.GetAttrPath("command"),
			Summary: "Every user of this machine can ask the server",
			Detail: "With {port} it listens on 127.0.0.1 without a token: every user can use it, and run " +
				"code as you where its actions are code. Write {socket} in place of the port if the server can listen at a " +
				"Unix socket, as uvicorn with --uds {socket}.",
		}}
	}
	return nil
}

// Setup is what a server is opened with.
type Setup struct {
	Location
	Health  string // path that answers 200 when the server can be used
	Block   sdk.Block
	Log     func(level, message string)
	Handles func([]byte) // Host.SetHandle
}

// Server is the server of an environment.
type Server struct {
	setup  Setup
	url    string
	client *http.Client

	// where a server that is started listens: at a socket, or at a port
	socket       string
	port         int
	removeSocket func() error
	stop         context.CancelFunc
	done         chan struct{} // the program is not watched any more; nil: there is none

	mu      sync.Mutex
	program *proc.Program
	failed  error           // it cannot be started any more
	told    map[string]bool // lines of its output that were logged
}

const (
	healthEvery   = 100 * time.Millisecond
	healthTimeout = 5 * time.Second
	stopGrace     = 5 * time.Second
	maxDeaths     = 5               // in a row, each within settled of its start
	settled       = 2 * time.Minute // a program that lived this long may die again as often
	restartFirst  = 500 * time.Millisecond
)

// Open starts the server if there is a command, and waits until it answers.
func Open(ctx context.Context, setup Setup) (*Server, error) {
	s := &Server{setup: setup, url: strings.TrimRight(setup.BaseURL, "/"),
		client: &http.Client{}}
	if setup.BaseURL == "" && len(setup.Command) == 0 {
		return nil, &sdk.Error{Summary: "no server is named", Remedy: "set base_url, or command to start one"}
	}
	if len(setup.Command) == 0 {
		s.client.Transport = s.Transport(&http.Transport{IdleConnTimeout: time.Minute})
		if err := s.ready(ctx, nil); err != nil {
			s.client.CloseIdleConnections()
			return nil, err
		}
		return s, nil
	}
	for _, h := range proc.Parse(setup.Block.Handle) { // of an attempt that was killed
		if p, err := proc.Adopt(h); err == nil {
			_ = p.Stop(ctx, stopGrace)
		}
	}
	if err := s.place(); err != nil {
		return nil, err
	}
	s.client.Transport = s.Transport(&http.Transport{IdleConnTimeout: time.Minute})
	program, err := s.start(ctx)
	if err != nil {
		return nil, errors.Join(err, s.removeSocket())
	}
	if err := s.ready(ctx, program); err != nil {
		s.client.CloseIdleConnections()
		return nil, errors.Join(err, program.Stop(context.WithoutCancel(ctx), stopGrace), s.removeSocket())
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop, s.done = stop, make(chan struct{})
	go s.watch(watching)
	return s, nil
}

// mostSocketBytes is how long the path of a socket may be on every system.
const mostSocketBytes = 103

// place chooses where a server that is started listens. The folder of a socket is this user's, so no other user of the
// machine reaches the server. A port is for programs that cannot listen at a socket.
func (s *Server) place() (err error) {
	s.removeSocket = func() error { return nil }
	if !slices.ContainsFunc(s.setup.Command, func(word string) bool { return strings.Contains(word, "{socket}") }) {
		if s.port, err = loopback.FreePort(); err == nil {
			s.url = "http://127.0.0.1:" + strconv.Itoa(s.port)
		}
		return err
	}
	folder, remove, err := temporary.Dir("", "recipe-env-")
	if err != nil {
		return fmt.Errorf("make a folder for the socket of the environment's server: %w", err)
	}
	s.url, s.socket, s.removeSocket = "http://localhost", filepath.Join(folder, "server"), remove
	if len(s.socket) > mostSocketBytes {
		return errors.Join(&sdk.Error{Summary: fmt.Sprintf("the path of the server's socket, %s, has more than %d bytes",
			s.socket, mostSocketBytes), Remedy: "set TMPDIR to a folder with a shorter path"}, remove())
	}
	return nil
}

// listens says where the command must listen.
func (s *Server) listens() string {
	if s.socket != "" {
		return "at the Unix socket {socket}"
	}
	return "on 127.0.0.1:{port}"
}

// URL is where the server answers, without a slash at its end.
func (s *Server) URL() string { return s.url }

// Transport prepares t for requests to the server and returns it. A server that was started here must belong to this
// user; one that a recipe names may be anyone's, and may be behind a proxy.
func (s *Server) Transport(t *http.Transport) *http.Transport {
	switch {
	case s.socket != "":
		t.Proxy = nil
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: healthTimeout}).DialContext(ctx, "unix", s.socket)
		}
		return t
	case s.port != 0:
		return peer.Transport(s.url, t)
	}
	t.Proxy = proxy.Of
	return t
}

// Err explains why the server cannot be used any more; nil: it can, or it is being started again.
func (s *Server) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// start starts the program.
func (s *Server) start(ctx context.Context) (*proc.Program, error) {
	argv := make([]string, len(s.setup.Command))
	for i, word := range s.setup.Command {
		argv[i] = strings.NewReplacer("{port}", strconv.Itoa(s.port), "{socket}", s.socket).Replace(word)
	}
	var ports []int
	if s.socket == "" {
		ports = []int{s.port}
	} else if err := os.Remove(s.socket); err != nil && !errors.Is(err, fs.ErrNotExist) { // of one that has died
		return nil, fmt.Errorf("remove the socket of the environment's earlier server: %w", err)
	}
	env := os.Environ()
	for name, value := range s.setup.Block.Environment {
		env = append(env, name+"="+value)
	}
	if argv[0] == "python" {
		python, err := interpreter.Find(s.setup.Block.Runtime, sdk.Packages{}, s.setup.Block.RecipeDir, os.Getenv)
		if err != nil {
			return nil, err
		}
		argv[0] = python
	}
	dir := s.setup.CommandDir
	if dir == "" {
		dir = s.setup.Block.RecipeDir
	} else {
		dir = interpreter.Absolute(dir, s.setup.Block.RecipeDir)
	}
	program, err := proc.Start(ctx, proc.Spec{Name: "server", Argv: argv, Env: env, Dir: dir,
		LogDir: s.setup.Block.Dir, Ports: ports})
	if err != nil {
		return nil, &sdk.Error{Summary: "the environment's server could not be started", Err: err,
			Remedy: "command must name a program that can be run"}
	}
	if s.setup.Handles != nil {
		s.setup.Handles(proc.Encode(program.Handle()))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.program = program
	return program, nil
}

// ready waits until the server answers. Program is nil when it runs elsewhere.
func (s *Server) ready(ctx context.Context, program *proc.Program) error {
	within, cancel := context.WithTimeout(ctx, s.setup.StartTimeout)
	defer cancel()
	var ended <-chan struct{}
	if program != nil {
		ended = program.Done()
	}
	for {
		err := s.healthy(within)
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			return &sdk.Error{Summary: "the environment's server ended before it answered",
				Detail: program.Tail(20), Err: program.Err(),
				Remedy: "see its output above; command must start a server that listens " + s.listens()}
		case <-within.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			e := &sdk.Error{Summary: fmt.Sprintf("the environment's server at %s has not answered GET %s within "+
				"start_timeout = %s", redact.Text(s.url), s.setup.Health, s.setup.StartTimeout), Err: err,
				Remedy: "start it, or correct base_url"}
			if program != nil {
				e.Detail = program.Tail(20)
				e.Remedy = "see its output above; command must start a server that listens " + s.listens()
			}
			return e
		case <-time.After(healthEvery):
		}
	}
}

func (s *Server) healthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+s.setup.Health, nil)
	if err != nil {
		return fmt.Errorf("ask the server for its health: %w", err)
	}
	answer, err := s.client.Do(q)
	if err != nil {
		return errors.New(redact.Text(err.Error()))
	}
	defer func() { _ = answer.Body.Close() }()
	_, _ = io.CopyN(io.Discard, answer.Body, 4096)
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: HTTP %d", s.setup.Health, answer.StatusCode)
	}
	return nil
}

// watch starts the program again when it ends, until it has ended too often.
func (s *Server) watch(ctx context.Context) {
	defer close(s.done)
	began, deaths := time.Now(), 0
	for {
		s.mu.Lock()
		program := s.program
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-program.Done():
		}
		if time.Since(began) > settled {
			deaths = 0
		}
		deaths++
		if deaths > maxDeaths {
			s.fail(&sdk.Error{Summary: fmt.Sprintf("the environment's server ended %d times in a row", deaths),
				Detail: program.Tail(20), Err: program.Err(), Remedy: "see its output above"})
			return
		}
		wait := restartFirst << (deaths - 1)
		s.setup.Log("warn", fmt.Sprintf("the environment's server has ended (%v); starting it again in %s. Its last "+
			"lines:\n%s", program.Err(), wait, program.Tail(10)))
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		began = time.Now()
		if _, err := s.start(ctx); err != nil {
			s.fail(err)
			return
		}
	}
}

func (s *Server) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = err
}

// Close ends the program, if there is one, and what it has started.
func (s *Server) Close() error {
	s.client.CloseIdleConnections()
	if s.done == nil {
		return nil
	}
	s.stop()
	<-s.done
	s.mu.Lock()
	program := s.program
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 2*stopGrace)
	defer cancel()
	return errors.Join(program.Stop(ctx, stopGrace), s.removeSocket())
}

// Lines of a server's output that may say why a call to it failed.
var troubled = lazyregexp.New(`(?i)\b(?:error|warn(?:ing)?|exception|fail(?:ed|ure)?|could ?n[o']t|cannot|not found|` +
	`no such|refused|denied|timed out|unreachable)\b|Error\b`)

// mostTold are as many lines of a server's output as are logged.
const mostTold = 20

// tell logs the newest line of the server's output that may explain why a call to it failed, each once. The call itself
// often fails with an error of the connection only.
func (s *Server) tell() {
	s.mu.Lock()
	program := s.program
	s.mu.Unlock()
	if program == nil {
		return
	}
	lines := strings.Split(strings.TrimSpace(program.Tail(200)), "\n")
	for _, line := range slices.Backward(lines) {
		if line = strings.TrimSpace(line); !troubled.MatchString(line) {
			continue
		}
		s.mu.Lock()
		again := s.told[line] || len(s.told) >= mostTold
		if s.told == nil {
			s.told = map[string]bool{}
		}
		if !again {
			s.told[line] = true
		}
		s.mu.Unlock()
		if !again {
			s.setup.Log("warn", "the environment's server writes: "+line)
		}
		return
	}
}

// Failed makes an error of a call to the server: infra_failed, unless the server cannot be used any more, which ends
// the block. An error with a method Answer that returns true is the environment's own answer.
func (s *Server) Failed(err error) error {
	if gone := s.Err(); gone != nil {
		return gone
	}
	s.tell()
	var said interface{ Answer() bool }
	return &environment.InfraFailed{Err: err, Answered: errors.As(err, &said) && said.Answer()}
}
