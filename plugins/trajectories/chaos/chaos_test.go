// Package chaos kills the trajectory API repeatedly while it works, and compares what it has acknowledged with what it
// delivers.
package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/plugins/trajectories"
)

var kills = flag.Int("kills", 20, "how often to kill the server; thousands for the long form")

// childDir and childPort make a copy of this test binary the server.
const (
	childDir  = "CHAOS_CHILD_DIR"
	childPort = "CHAOS_CHILD_PORT"
)

func TestMain(m *testing.M) {
	if os.Getenv(gatewayPort) != "" {
		fmt.Fprintln(os.Stderr, gatewayMain())
		os.Exit(1)
	}
	if dir := os.Getenv(childDir); dir != "" {
		var port int
		_, _ = fmt.Sscan(os.Getenv(childPort), &port)
		err := trajectories.Run(context.Background(), trajectories.RunOptions{Port: port,
			Config: trajectories.Config{Dir: dir, SegmentBytes: 256 << 10}}, io.Discard)
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// server is a process that is killed and restarted at the same address.
type server struct {
	t    *testing.T
	dir  string
	port int
	url  string
	cmd  *exec.Cmd
	err  bytes.Buffer
}

func newServer(t *testing.T) *server {
	t.Helper()
	port := steadyPort(t)
	s := &server{t: t, dir: t.TempDir(), port: port, url: fmt.Sprintf("http://127.0.0.1:%d", port)}
	s.start()
	t.Cleanup(s.kill)
	return s
}

// steadyPort is a port that stays free while its server is dead: below the range that systems assign automatically.
func steadyPort(t *testing.T) int {
	t.Helper()
	for range 200 {
		port := 20000 + rand.IntN(12000)
		ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_ = ln.Close()
			return port
		}
	}
	t.Fatal("found no free port between 20000 and 32000")
	return 0
}

func (s *server) start() {
	s.cmd = exec.Command(os.Args[0])
	s.cmd.Env = append(os.Environ(), childDir+"="+s.dir, fmt.Sprintf("%s=%d", childPort, s.port))
	s.cmd.Stderr = &s.err
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// ready waits until the server answers.
func (s *server) ready() {
	s.t.Helper()
	for range 600 {
		if code, _, err := s.call(http.MethodGet, "/info", nil); err == nil && code == http.StatusOK {
			return
		}
		time.Sleep(25 * time.Millisecond)
	}
	s.t.Fatalf("the server did not come back within 15 s: %s", s.err.String())
}

var client = &http.Client{Timeout: 20 * time.Second}

func (s *server) call(method, path string, body []byte, headers ...string) (int, []byte, error) {
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	reply, err := client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = reply.Body.Close() }()
	text, err := io.ReadAll(reply.Body)
	return reply.StatusCode, text, err
}

// until repeats a call until the server answers: it may be dead for a moment.
func (s *server) until(method, path string, body []byte) (int, []byte) {
	for {
		code, text, err := s.call(method, path, body)
		if err == nil && code < 500 {
			return code, text
		}
		if s.t.Context().Err() != nil {
			return 0, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// ledger holds what the clients know.
type ledger struct {
	mu           sync.Mutex
	acknowledged map[int]bool // posts that were answered with 200
	trained      map[int]int  // number of acknowledged batches with the group
	next         atomic.Int64
	repeated     atomic.Int64
	keys         bool // posts have keys and are repeated until they are answered
}

func group(mark, size, tokens, env int) []byte {
	seq := make([]int, tokens)
	for i := range seq {
		seq[i] = mark
	}
	g := map[string]any{"tokens": [][]int{}, "masks": [][]int{}, "scores": []float64{}}
	for range size {
		g["tokens"], g["masks"], g["scores"] = append(g["tokens"].([][]int), seq), append(g["masks"].([][]int), seq),
			append(g["scores"].([]float64), 1)
	}
	if env >= 0 {
		g["env_id"] = env
	}
	text, err := json.Marshal(g)
	if err != nil {
		panic(err)
	}
	return text
}

// post sends groups of all sizes until ctx ends: each once, or each with a key until it is answered.
func (l *ledger) post(ctx context.Context, s *server, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	for ctx.Err() == nil {
		mark := int(l.next.Add(1))
		size := []int{1, 2, 3, 4, 4, 4, 8}[rng.IntN(7)]
		body := group(mark, size, 1+rng.IntN(600), rng.IntN(3)-1)
		var key []string
		if l.keys {
			key = []string{"Idempotency-Key", fmt.Sprint("post ", mark)}
		}
		code, _, err := s.call(http.MethodPost, "/scored_data", body, key...)
		for l.keys && (err != nil || code >= 500) && s.t.Context().Err() == nil {
			l.repeated.Add(1)
			time.Sleep(5 * time.Millisecond)
			code, _, err = s.call(http.MethodPost, "/scored_data", body, key...)
		}
		if err == nil && code == http.StatusOK {
			l.mu.Lock()
			l.acknowledged[mark] = true
			l.mu.Unlock()
		} else if err != nil {
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// batch is a reply to GET /batch.
type batch struct {
	Batch []struct{ Tokens [][]int }
	ID    string
}

// train fetches one batch, under a lease or without. A broken connection leaves a lease without an owner: the trainer
// registers again, as a restarted one would.
func (l *ledger) train(t *testing.T, s *server, leased bool) (got bool) {
	path := "/batch"
	if leased {
		path = "/batch?lease=1h"
		if rand.IntN(2) == 0 {
			path += "&early=true"
		}
	}
	code, text, err := s.call(http.MethodGet, path, nil)
	if err != nil || code != http.StatusOK {
		s.until(http.MethodPost, "/register", registration)
		return true
	}
	var b batch
	if err := json.Unmarshal(text, &b); err != nil {
		t.Errorf("the batch is %.100q: %v", text, err)
		return false
	}
	if len(b.Batch) == 0 {
		return false
	}
	sequences := 0
	for _, g := range b.Batch {
		sequences += len(g.Tokens)
		for _, seq := range g.Tokens {
			if seq[0] != g.Tokens[0][0] || seq[len(seq)-1] != seq[0] {
				t.Errorf("a group is mixed up: %v", g.Tokens)
			}
		}
	}
	if sequences != 16 {
		t.Errorf("a batch has %d sequences, expected 16", sequences)
	}
	if leased {
		if code, text := s.until(http.MethodPost, "/batch/"+b.ID+"/ack", nil); code != http.StatusOK {
			t.Errorf("the acknowledgement of %s is answered with %d %s", b.ID, code, text)
			return true
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range b.Batch {
		l.trained[g.Tokens[0][0]]++
	}
	return true
}

var registration = []byte(`{"wandb_group":"","wandb_project":"","batch_size":16,"max_token_len":600,"checkpoint_dir":"","save_checkpoint_interval":1,"starting_step":0,"num_steps":1000000}`)

func TestNothingAcknowledgedIsLost(t *testing.T) {
	t.Parallel()
	for _, leased := range []bool{true, false} {
		t.Run(fmt.Sprintf("leased=%v", leased), func(t *testing.T) {
			t.Parallel()
			run(t, leased, *kills/2)
		})
	}
}

func run(t *testing.T, leased bool, kills int) {
	s := newServer(t)
	s.ready()
	l := &ledger{acknowledged: map[int]bool{}, trained: map[int]int{}, keys: leased}
	for range 5 { // larger than any batch: they wait to the end, and files of the log must not wait with them
		mark := int(l.next.Add(1))
		s.until(http.MethodPost, "/scored_data", group(mark, 20, 300, -1))
		l.acknowledged[mark] = true
	}
	s.until(http.MethodPost, "/register", registration)
	s.until(http.MethodGet, "/batch", nil)
	for i := range 2 {
		s.until(http.MethodPost, "/register-env", fmt.Appendf(nil,
			`{"max_token_length":600,"desired_name":"e%d","weight":1,"group_size":4}`, i))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() { l.post(ctx, s, uint64(i)) })
	}
	wg.Go(func() {
		for ctx.Err() == nil {
			if !l.train(t, s, leased) {
				time.Sleep(10 * time.Millisecond)
			}
		}
	})
	rng := rand.New(rand.NewPCG(9, 9))
	for range kills {
		s.ready()
		time.Sleep(time.Duration(rng.IntN(80)) * time.Millisecond)
		s.kill()
		s.start()
	}
	s.ready()
	cancel()
	wg.Wait()
	for l.train(t, s, leased) { // the groups that are left
	}
	l.check(t, s, kills, leased)
}

// check compares. Without leases a batch whose delivery could not be recorded any more is delivered twice: at most one
// for each kill.
func (l *ledger) check(t *testing.T, s *server, kills int, leased bool) {
	waiting, err := s.waiting()
	if err != nil {
		t.Fatal(err)
	}
	lost, twice := 0, 0
	for mark := range l.acknowledged {
		if l.trained[mark] == 0 && !waiting[mark] {
			lost++
		}
	}
	for mark, n := range l.trained {
		if n > 1 || waiting[mark] {
			twice++
		}
	}
	s.kill() // what the last process has ended is removed when the store is opened
	s.start()
	s.ready()
	files, err := filepath.Glob(filepath.Join(s.dir, "log", "*.log"))
	if err != nil || len(files) > len(waiting)+2 {
		t.Errorf("%d files of the log are left for %d groups, %v", len(files), len(waiting), err)
	}
	t.Logf("%d kills: %d groups acknowledged, %d trained, %d waiting, %d more than once, %d posts repeated, %d "+
		"files of the log", kills, len(l.acknowledged), len(l.trained), len(waiting), twice, l.repeated.Load(), len(files))
	if lost > 0 {
		t.Errorf("%d of %d acknowledged groups are lost", lost, len(l.acknowledged))
	}
	if allowed := kills * 16; leased && twice > 0 || twice > allowed {
		t.Errorf("%d groups came more than once", twice)
	}
	if len(l.trained) == 0 {
		t.Error("nothing was trained: the test tests nothing")
	}
}

// waiting lists what is stored, by mark.
func (s *server) waiting() (map[int]bool, error) {
	out := map[int]bool{}
	after := uint64(0)
	for {
		_, text, err := s.call(http.MethodGet, fmt.Sprintf("/groups?after=%d", after), nil)
		if err != nil {
			return nil, err
		}
		var list struct{ Groups []trajectories.Summary }
		if err := json.Unmarshal(text, &list); err != nil {
			return nil, err
		}
		if len(list.Groups) == 0 {
			return out, nil
		}
		for _, g := range list.Groups {
			after = g.ID
			code, text, err := s.call(http.MethodGet, fmt.Sprintf("/groups/%d", g.ID), nil)
			var body struct{ Tokens [][]int }
			if err := errors.Join(err, json.Unmarshal(text, &body)); err != nil || code != http.StatusOK {
				return nil, fmt.Errorf("group %d: %d %w", g.ID, code, err)
			}
			out[body.Tokens[0][0]] = true
		}
	}
}
