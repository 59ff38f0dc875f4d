package remote

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/recipe-rl/recipe/engine/agent"
	"github.com/recipe-rl/recipe/sdk/executor"
)

// impostor is an agent on a machine that is not ours any more: it joins in order, and then answers what it likes.
type impostor struct {
	boot agent.Bootstrap
	// hello is added to its hello; files are what it says its block has written.
	hello string
	files map[string]string
	// modified is when it says that they were; zero: now.
	modified time.Time
}

// line asks one question on a connection of TLS, and reads the answer.
func line(c io.ReadWriter, question, answer any) error {
	text, err := json.Marshal(question)
	if err == nil {
		_, err = c.Write(append(text, '\n'))
	}
	if err != nil {
		return err
	}
	return json.NewDecoder(c).Decode(answer)
}

// join shows the token of a job.
func (s *site) join(j agent.Join, instance string) (agent.JoinResponse, error) {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(j.Authority)
	c, err := tls.Dial("tcp", j.Addresses[0], &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool,
		ServerName: agent.EngineName, NextProtos: []string{agent.JoinProtocol}})
	if err != nil {
		return agent.JoinResponse{}, err
	}
	defer func() { _ = c.Close() }()
	var out agent.JoinResponse
	return out, line(c, agent.JoinRequest{Job: j.Job, Token: j.Token, Instance: instance}, &out)
}

// invitation waits for the input of a job's program.
func (s *site) invitation(k executor.Key) (j agent.Join) {
	s.t.Helper()
	for s.ctx.Err() == nil {
		s.cluster.mu.Lock()
		job := s.cluster.jobs[k]
		s.cluster.mu.Unlock()
		if job != nil {
			if err := json.Unmarshal([]byte(job.input), &j); err != nil {
				s.t.Fatal(err)
			}
			return j
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.t.Fatal("the job was not submitted")
	return j
}

// serve answers an engine until the connection ends.
func (i impostor) serve(t *testing.T) {
	t.Helper()
	config, err := i.boot.Credentials.Config(agent.EngineName)
	if err != nil {
		t.Fatal(err)
	}
	c, err := tls.Dial("tcp", i.boot.Addresses[0], config)
	if err != nil {
		t.Fatal(err)
	}
	mux, err := yamux.Server(c, agent.Multiplex())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mux.Close() })
	go func() {
		for {
			stream, err := mux.Accept()
			if err != nil {
				return
			}
			go i.answer(stream)
		}
	}()
}

func (i impostor) answer(c net.Conn) {
	defer func() { _ = c.Close() }()
	var r agent.Request
	if json.NewDecoder(c).Decode(&r) != nil {
		return
	}
	switch r.Op {
	case "hello":
		job, _ := json.Marshal(i.boot.Job)
		fmt.Fprintf(c, `{"hello": {"job": %s, "instance": "x", "data": "127.0.0.1:1", "folder": "/x"%s}}`+"\n", job, i.hello)
	case "list":
		out := agent.Response{Entries: []agent.Entry{}}
		for path, text := range i.files {
			out.Entries = append(out.Entries, agent.Entry{Path: path, Size: int64(len(text)),
				Modified: cmp.Or(i.modified, time.Now())})
		}
		text, _ := json.Marshal(out)
		_, _ = c.Write(append(text, '\n'))
	case "get":
		text := i.files[r.Path][r.Offset:]
		fmt.Fprintf(c, `{"size": %d}`+"\n%s", len(text), text)
	default:
		fmt.Fprintln(c, "{}")
	}
}

// take submits a job whose agent is the impostor.
func (i impostor) take(t *testing.T, s *site, h *Hub, block string) *Job {
	t.Helper()
	s.cluster.silent = true // its own agent does not start
	spec := s.stagedSpec(block, 1, nil)
	type result struct {
		j   *Job
		err error
	}
	submitted := make(chan result, 1)
	go func() {
		j, err := h.Submit(s.ctx, spec, s.open, func(string) {})
		submitted <- result{j, err}
	}()
	answer, err := s.join(s.invitation(executor.Key{Run: "run", Block: block, Attempt: 1}), "x")
	if err != nil || answer.Bootstrap == nil {
		t.Fatal(err, answer.Error)
	}
	i.boot = *answer.Bootstrap
	i.serve(t)
	r := <-submitted
	if r.err != nil {
		t.Fatal(r.err)
	}
	return r.j
}

// An agent that names files outside of its block's folders has none of them written.
func TestAnAgentWritesToItsOwnBlockAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.run = filepath.Join(s.run, "run")
	key := filepath.Join(s.run, "key")
	if err := os.Mkdir(s.run, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key, []byte("the key"), 0o600); err != nil {
		t.Fatal(err)
	}
	const block = "trainer.tiny.a"
	hostile := []string{
		"run/blocks/" + block + "/../../key",
		"run/blocks/" + block + "/../trainer.tiny.b/events",
		"run/blocks/" + block + "/../../../other/run.json",
		"run/../" + block + "/x",
		"run/./" + block + "/x",
		"run/blocks/trainer.tiny.b/x",
		"run/blocks//" + block + "/x",
		"recipe/x/" + block + "/x",
		"/run/" + block + "/x",
	}
	files := map[string]string{"run/blocks/" + block + "/log": "its own"}
	for _, name := range []string{"job.json", "JOB.json", "Reattach.JSON", "join.j\u017fon", "jo\uff49n.json"} {
		files["run/blocks/"+block+"/"+name] = "hostile" // the engine's, on some systems in any case and form of Unicode
	}
	for _, path := range hostile {
		files[path] = "hostile"
	}
	j := impostor{files: files}.take(t, s, s.hub(time.Minute), block)
	err := j.Pull(s.ctx)
	for _, path := range hostile {
		if err == nil || !strings.Contains(err.Error(), path+": it is in no folder") {
			t.Errorf("%s is not refused: %v", path, err)
		}
	}
	for path, own := range map[string]bool{s.run + "/checkpoints/" + block + "/step-1": true, key: false,
		s.run + "/checkpoints/" + block + "/../../key": false, s.run + "/checkpoints/trainer.tiny.b/step-1": false,
		s.run + "/" + block + "/x": false, "/etc/passwd": false, "step-1": false} {
		if j.Own(path) != own {
			t.Errorf("%s is the block's own: %v", path, !own)
		}
	}
	s.content(filepath.Join(s.run, "blocks", block, "log"), "its own")
	s.content(key, "the key")
	err = filepath.WalkDir(filepath.Dir(s.run), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if text, _ := os.ReadFile(path); string(text) == "hostile" {
				t.Errorf("%s was written", path)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The ports that an agent says it was given are no reason to open those of other machines to it.
func TestAnAgentNamesNoPortOfOthers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := s.hub(time.Minute)
	secret := greeter(t, "secret", "127.0.0.1:0").Addr().String()
	victim := s.submit(h, "inference.tiny.b")
	i := impostor{hello: fmt.Sprintf(`, "forwards": [{"block": "inference.tiny.b", "target": %q}]`, secret)}
	j := i.take(t, s, h, "trainer.tiny.a")
	h.reroute(j.peer)
	at, err := victim.peer.via()
	if err != nil {
		t.Fatal(err)
	}
	own, err := h.authority.issue(j.peer.name)
	if err != nil {
		t.Fatal(err)
	}
	if got := open(t, own, victim.peer.name, at[0], secret); !strings.Contains(got, "not allowed") {
		t.Errorf("the agent reaches a port of another machine: %s", got)
	}
	h.Close() // what it does in the background has ended then
	if len(h.routes) > 0 {
		t.Errorf("routes that an agent has named: %v", h.routes)
	}
}

// Connections that say nothing, or half of something, do not keep agents from their engine.
func TestSilentConnectionsKeepNoAgentOut(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := s.hub(time.Minute)
	s.submit(h, "trainer.tiny.a")
	for n := range 2 * agent.StrangersAtOnce {
		c, err := net.Dial("tcp", h.listeners[true].Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if n%2 == 0 { // the beginning of TLS
			_, _ = c.Write([]byte{tlsHandshake, 3, 1})
		}
	}
	j := s.submitStaged(h, s.stagedSpec("trainer.tiny.b", 1, nil)) // the engine cannot reach out to an agent that joins
	if err := j.End(s.ctx); err != nil {
		t.Error(err)
	}
}

// What a client without a certificate of the run says is not heard, however it tries.
func TestOnlyMembersOfTheRunAreHeard(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := s.hub(time.Minute)
	j := s.submit(h, "trainer.tiny.a")
	at := h.listeners[true].Addr().String()
	other := s.t.TempDir()
	foreign, err := openAuthority(other) // of another run
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := foreign.issue(j.peer.name)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(wrong.Own.Certificate, wrong.Own.Key)
	if err != nil {
		t.Fatal(err)
	}
	cache := tls.NewLRUClientSessionCache(8)
	for _, c := range []struct {
		name   string
		config *tls.Config
	}{
		{name: "no certificate", config: &tls.Config{}},
		{name: "the certificate of another run", config: &tls.Config{Certificates: []tls.Certificate{pair}}},
		{name: "joins and something else", config: &tls.Config{NextProtos: []string{agent.JoinProtocol, "h2"}}},
		{name: "TLS 1.2", config: &tls.Config{MaxVersion: tls.VersionTLS12}},
		{name: "a session of a join",
			config: &tls.Config{NextProtos: []string{agent.JoinProtocol}, ClientSessionCache: cache}},
		{name: "that session again", config: &tls.Config{ClientSessionCache: cache}},
	} {
		c.config.InsecureSkipVerify, c.config.ServerName = true, agent.EngineName
		conn, err := tls.Dial("tcp", at, c.config)
		if err != nil {
			continue // refused in the handshake
		}
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		if c.config.NextProtos != nil {
			fmt.Fprintln(conn, "{}")
		}
		text, err := bufio.NewReader(conn).ReadString('\n')
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			t.Errorf("%s: the connection is kept", c.name)
		}
		if joins := conn.ConnectionState().NegotiatedProtocol == agent.JoinProtocol; text != "" &&
			!(joins && strings.Contains(text, "no agent of job")) {
			t.Errorf("%s: %q is answered", c.name, text)
		}
		_ = conn.Close()
	}
}

// A file that was staged may be the recipe's own, by another name: what an agent says was added to it is not added
// there.
func TestAnAgentWritesIntoNoFileOfTheRecipe(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const block = "trainer.tiny.a"
	program := filepath.Join(t.TempDir(), "program") // of a plugin: see stagePlugin of package run
	there := filepath.Join(s.run, "blocks", block, "plugin", "program")
	if err := os.MkdirAll(filepath.Dir(there), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, []byte("own"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(program, there); err != nil {
		t.Skip(err)
	}
	info, err := os.Stat(there)
	if err != nil {
		t.Fatal(err)
	}
	path := "run/blocks/" + block + "/plugin/program"
	i := impostor{files: map[string]string{path: "own"}, modified: info.ModTime()}
	j := i.take(t, s, s.hub(time.Minute), block)
	if err := j.Pull(s.ctx); err != nil {
		t.Fatal(err)
	}
	i.files[path] = "own; and hostile"
	if err := j.Pull(s.ctx); err != nil {
		t.Fatal(err)
	}
	s.content(program, "own")
}
