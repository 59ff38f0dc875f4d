package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/internal/peer"
	"github.com/recipe-rl/recipe/internal/web"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
)

// socketLimit is the maximum length of a unix socket's path on all systems (macOS: 104 bytes with the final zero).
const socketLimit = 100

// inRunDirectory is the path of the socket of a run's engine, empty where it is too long; name is that of a socket in a
// private folder (private.Root), which is used then. The name is made of what stays when the directory is moved while
// the engine works.
func inRunDirectory(dir state.Dir) (path, name string, err error) {
	abs, err := filepath.Abs(string(dir))
	if err != nil {
		return "", "", fmt.Errorf("find the run directory: %w", err)
	}
	key := abs
	if here, err := dir.Here(); err == nil {
		key = fmt.Sprintf("%d:%d", here.Device, here.Inode)
	}
	sum := sha256.Sum256([]byte(key))
	name = hex.EncodeToString(sum[:12]) + ".sock"
	if p := filepath.Join(abs, "engine.sock"); len(p) <= socketLimit {
		return p, name, nil
	}
	return "", name, nil
}

// listenPath is where a new engine listens.
func listenPath(dir state.Dir) (string, error) {
	path, name, err := inRunDirectory(dir)
	if err != nil || path != "" {
		return path, err
	}
	root, err := private.Root(socketLimit - len(name) - 1)
	if err != nil {
		return "", err
	}
	return filepath.Join(root, name), nil
}

// socketPaths are the possible sockets of a run's engine. Its TMPDIR may differ from this process's, and the path of
// the run directory may have been longer when it was started.
func socketPaths(dir state.Dir) ([]string, error) {
	path, name, err := inRunDirectory(dir)
	if err != nil {
		return nil, err
	}
	var paths []string
	if path != "" {
		paths = append(paths, path)
	}
	for _, root := range private.Usable() {
		paths = append(paths, filepath.Join(root, name))
	}
	return paths, nil
}

// server answers for a running engine. Only this user can enter the folder of its socket, and it answers only processes
// of this user.
type server struct {
	http *http.Server
	path string
	wg   sync.WaitGroup
}

func serve(ctx context.Context, s *Session, e *run.Engine) (*server, error) {
	path, err := listenPath(s.Dir)
	if err != nil {
		return nil, fmt.Errorf("open the engine's socket: %w", err)
	}
	if err := private.CheckDir(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("open the engine's socket: %w", err)
	}
	// The run's lock is held, so an existing socket was left by a killed engine.
	_ = os.Remove(path)
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("open the engine's socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("restrict the engine's socket to this user: %w", err)
	}
	srv := &server{path: path, http: web.NewServer(handler(s, e))}
	srv.wg.Add(1)
	go func() { defer srv.wg.Done(); _ = web.Serve(srv.http, peer.Listener{Listener: l}) }()
	return srv, nil
}

func (s *server) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		_ = s.http.Close()
	}
	s.wg.Wait()
	_ = os.Remove(s.path)
}

// WhyRequest asks for the stalls of a run.
type WhyRequest = run.WhyRequest

// Identity is the answer to GET /v1/engine: which process answers, and for which attempt to detach it was started.
type Identity struct {
	PID     int    `json:"pid"`
	Attempt string `json:"attempt,omitempty"`
}

// Status is the answer to GET /v1/status.
type Status struct {
	Run  *state.Run                   `json:"run"`
	Live map[addr.Block]plan.Observed `json:"live"`
	// Waiting lists what the engine cannot write at present.
	Waiting []run.Waiting `json:"waiting,omitempty"`
	// Healed lists the files that the engine has written again after another program had changed them.
	Healed []run.Healed `json:"healed,omitempty"`
	// Ending is set while the run is being stopped.
	Ending *run.Ending `json:"ending,omitempty"`
}

type orderRequest struct {
	Address addr.Block `json:"address,omitzero"`
	Why     string     `json:"why,omitempty"`
	Kill    bool       `json:"kill,omitempty"`
	Limit   int        `json:"limit,omitempty"`
	Paused  bool       `json:"paused,omitempty"`
}

type outputRequest struct {
	Name string `json:"name"`
}

type applyRequest struct {
	Request  Request    `json:"request"`
	Approved *plan.Plan `json:"approved,omitempty"`
}

func handler(s *Session, e *run.Engine) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/engine", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, Identity{PID: os.Getpid(), Attempt: s.attempt}, nil)
	})
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, r *http.Request) {
		rec, live, err := e.Live(r.Context())
		var ending *run.Ending
		if err == nil {
			ending, err = e.Ending(r.Context())
		}
		answer(w, Status{rec, live, e.Waiting(), e.Healed(), ending}, err)
	})
	mux.HandleFunc("POST /v1/output", func(w http.ResponseWriter, r *http.Request) {
		var q outputRequest
		if read(w, r, &q) {
			value, err := e.Output(r.Context(), q.Name)
			answer(w, value, err)
		}
	})
	mux.HandleFunc("POST /v1/why", func(w http.ResponseWriter, r *http.Request) {
		var q WhyRequest
		if read(w, r, &q) {
			doc, err := e.Why(r.Context(), q)
			answer(w, doc, err)
		}
	})
	mux.HandleFunc("POST /v1/heal", func(w http.ResponseWriter, _ *http.Request) {
		e.Heal()
		answer(w, struct{}{}, nil)
	})
	mux.HandleFunc("POST /v1/stop", func(w http.ResponseWriter, r *http.Request) {
		var o orderRequest
		if !read(w, r, &o) {
			return
		}
		if o.Kill {
			answer(w, struct{}{}, e.Kill(r.Context()))
			return
		}
		answer(w, struct{}{}, e.Stop(r.Context(), o.Why))
	})
	mux.HandleFunc("POST /v1/restart", func(w http.ResponseWriter, r *http.Request) {
		var o orderRequest
		if read(w, r, &o) {
			answer(w, struct{}{}, e.Restart(r.Context(), o.Address))
		}
	})
	mux.HandleFunc("POST /v1/pause", func(w http.ResponseWriter, r *http.Request) {
		var o orderRequest
		if read(w, r, &o) {
			answer(w, struct{}{}, e.Pause(r.Context(), o.Paused))
		}
	})
	mux.HandleFunc("POST /v1/evaluate", func(w http.ResponseWriter, r *http.Request) {
		var o orderRequest
		if read(w, r, &o) {
			result, err := e.Evaluate(r.Context(), o.Address, o.Limit)
			answer(w, result, err)
		}
	})
	mux.HandleFunc("POST /v1/checkpoint", func(w http.ResponseWriter, r *http.Request) {
		var o orderRequest
		if read(w, r, &o) {
			saved, err := e.Checkpoint(r.Context(), o.Address)
			answer(w, saved, err)
		}
	})
	mux.HandleFunc("POST /v1/plan", func(w http.ResponseWriter, r *http.Request) {
		var req applyRequest
		if read(w, r, &req) {
			_, p, err := replan(r.Context(), s, e, req.Request)
			answer(w, p, err)
		}
	})
	mux.HandleFunc("POST /v1/apply", func(w http.ResponseWriter, r *http.Request) {
		var req applyRequest
		if !read(w, r, &req) {
			return
		}
		recipe, p, err := replan(r.Context(), s, e, req.Request)
		if err == nil && req.Approved != nil && !same(req.Approved, p) {
			err = ErrMoved
		}
		if err == nil {
			err = e.Converge(r.Context(), recipe, p)
		}
		answer(w, p, err)
	})
	return mux
}

// replan makes a plan of a new version of the recipe against the live run.
func replan(ctx context.Context, s *Session, e *run.Engine, req Request) (*schema.Recipe, *plan.Plan, error) {
	if sameFile(req.File, s.Request.File) {
		req.File = s.Request.File // else every path that is made of the recipe's folder would look changed
	}
	recipe, diags := load(req, s.plugins)
	if diags.HasErrors() {
		return nil, nil, diags
	}
	if !sameFile(string(state.DirOf(recipe.Dir, recipe.Name)), string(s.Dir)) {
		return nil, nil, fmt.Errorf("the recipe %q does not belong to the run %s", recipe.Name, s.Dir)
	}
	rec, live, err := e.Live(ctx)
	if err != nil {
		return nil, nil, err
	}
	next := &Session{Request: req, Recipe: recipe, Dir: s.Dir, host: s.host, plugins: s.plugins, check: s.check}
	p, err := next.plan(rec, live, true)
	return recipe, p, err
}

func sameFile(a, b string) bool {
	first, errA := os.Stat(a)
	second, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(first, second)
}

func read(w http.ResponseWriter, r *http.Request, into any) bool {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<20)).Decode(into); err != nil {
		answer(w, nil, fmt.Errorf("read the request: %w", err))
		return false
	}
	return true
}

type failure struct {
	Error string `json:"error"`
	Code  string `json:"code,omitempty"`
}

func answer(w http.ResponseWriter, v any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err == nil {
		_ = json.NewEncoder(w).Encode(v)
		return
	}
	f := failure{Error: err.Error()}
	switch {
	case errors.Is(err, ErrMoved):
		f.Code = "moved"
	case errors.Is(err, run.ErrOver):
		f.Code = "over"
	}
	w.WriteHeader(http.StatusConflict)
	_ = json.NewEncoder(w).Encode(f)
}
