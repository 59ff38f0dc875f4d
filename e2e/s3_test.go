//go:build e2e

package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/internal/objectstore"
)

const s3Recipe = `
inference "tiny" "policy" {}

environment "arithmetic" "sums" {
  inference  = inference.tiny.policy
  group_size = 16
}

trainer "tiny" "policy" {
  environments = [environment.arithmetic.sums]
  steps        = 100000
  save_every   = 5
  store        = "STORE"
  batch_size   = 256
  restart { attempts = 20 }
}

sync "weights" "policy" {
  trainer   = trainer.tiny.policy
  inference = [inference.tiny.policy]
}
`

// s3 is a real store on this machine.
type s3 struct {
	t      *testing.T
	folder string
	users  string // of keys other than the owner's
	ip     string // where it listens
	port   string
	cmd    *exec.Cmd
}

func newS3(t *testing.T) *s3 {
	t.Helper()
	return newS3At(t, "127.0.0.1")
}

// newS3At is a store at an address of this machine.
func newS3At(t *testing.T, ip string) *s3 {
	t.Helper()
	if os.Getenv("RECIPE_S3") == "" {
		t.Skip("RECIPE_S3 names no program: make e2e-s3 builds it")
	}
	l, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	_ = l.Close()
	s := &s3{t: t, folder: t.TempDir(), users: t.TempDir(), ip: ip, port: port}
	if err := os.Mkdir(filepath.Join(s.folder, "runs"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(guardFolder(t, s.folder))
	t.Setenv("AWS_ACCESS_KEY_ID", "researcher")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "the-key-that-nobody-prints")
	s.start()
	t.Cleanup(s.kill)
	return s
}

func (s *s3) start() {
	s.t.Helper()
	s.cmd = exec.Command(os.Getenv("RECIPE_S3"), "--port", net.JoinHostPort(s.ip, s.port), "--region", "us-east-1",
		"--iam-dir", s.users, "posix", s.folder)
	s.cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY=researcher", "ROOT_SECRET_KEY=the-key-that-nobody-prints")
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		c, err := net.Dial("tcp", net.JoinHostPort(s.ip, s.port))
		if err == nil {
			_ = c.Close()
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("the store does not listen: %v", err)
		}
	}
}

func (s *s3) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

func (s *s3) address() string {
	return "s3://runs/mine?endpoint=http://" + net.JoinHostPort(s.ip, s.port)
}

// manifests are those in the store, by the step of their checkpoint.
func (s *s3) manifests() map[int64]map[string]any {
	s.t.Helper()
	found := map[int64]map[string]any{}
	paths, _ := filepath.Glob(filepath.Join(s.folder, "runs", "mine", "*", "*", "*.manifest.json"))
	for _, path := range paths {
		text, err := os.ReadFile(path)
		var m map[string]any
		if err == nil && json.Unmarshal(text, &m) == nil {
			found[int64(m["step"].(float64))] = m
		}
	}
	return found
}

// killBlock kills the process of a block.
func (r *run) killBlock(address string) {
	r.t.Helper()
	for pid, line := range processes(r.t, r.dir) {
		if strings.Contains(line, " plugin-process "+address) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func (r *run) loses(folder string) {
	r.t.Helper()
	if err := os.RemoveAll(filepath.Join(r.dir, ".recipe", strings.TrimSuffix(r.recipe, ".hcl"), folder,
		r.trainer)); err != nil {
		r.t.Fatal(err)
	}
}

// TestS3 keeps checkpoints in a real store while trainer and store are killed at random. Then the machine of the
// trainer loses all its checkpoints, and the run goes on from the one in the store.
func TestS3(t *testing.T) {
	s := newS3(t)
	r := &run{t: t, dir: t.TempDir(), recipe: "s3.hcl", trainer: "trainer.tiny.policy"}
	text := strings.ReplaceAll(s3Recipe, "STORE", s.address())
	if err := os.WriteFile(filepath.Join(r.dir, r.recipe), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.cleanup)
	r.apply()
	for kill := range 6 {
		r.stepped(r.last())
		time.Sleep(time.Duration(rand.IntN(1500)) * time.Millisecond) //nolint:gosec // when it is killed
		from := r.last()
		if kill%3 == 2 {
			s.kill()
			time.Sleep(time.Second)
			s.start()
			continue
		}
		r.killBlock(r.trainer)
		r.await(time.Minute, "the trainer to be restarted", from, func(e event) bool {
			return e.Type == "restart" && e.Address == r.trainer
		})
	}
	r.await(time.Minute, "a checkpoint in the store", r.last(), func(e event) bool {
		return e.Type == "log" && strings.Contains(e.Message, " is in s3://runs/mine: ")
	})

	r.ask("stop")
	_ = r.wait(time.Minute)
	newest := int64(0)
	for step := range s.manifests() {
		newest = max(newest, step)
	}
	r.loses("checkpoints")
	from := r.last()
	r.args = append(r.args, "--set", fmt.Sprintf("%s.steps=%d", r.trainer, newest+50))
	r.apply()
	fetched := r.await(time.Minute, "the checkpoint to be fetched", from, func(e event) bool {
		return e.Type == "log" && strings.Contains(e.Message, fmt.Sprintf("fetches the checkpoint of step %d from", newest))
	})
	if next := r.stepped(fetched.Seq); next.Step != newest+1 {
		t.Errorf("after the checkpoint of step %d it goes on with step %d", newest, next.Step)
	}
	r.completeIn(s, newest+50)
}

// completeIn sees the run to its last step, and compares that checkpoint with what is in the store.
func (r *run) completeIn(s *s3, last int64) {
	r.t.Helper()
	if err := r.wait(3 * time.Minute); err != nil {
		r.t.Fatalf("apply: %v\n%s", err, r.story())
	}
	m := s.manifests()[last]
	if m == nil {
		r.t.Fatalf("the last checkpoint is not in the store, which has %d", len(s.manifests()))
	}
	name := m["name"].(string)
	here, err := os.ReadFile(filepath.Join(r.dir, ".recipe", "s3", "checkpoints", r.trainer, name))
	if err != nil {
		r.t.Fatal(err)
	}
	there, err := os.ReadFile(filepath.Join(s.folder, "runs", "mine", r.trainer, m["run"].(string), name))
	if err != nil || !bytes.Equal(here, there) {
		r.t.Errorf("the checkpoint in the store is not the one here: %v", err)
	}
	if n := len(s.manifests()); n > 7 { // and those that the lost machine had
		r.t.Errorf("the store has %d checkpoints; the trainer keeps 3", n)
	}
	leaks := exec.Command("grep", "-rl", "the-key-that-nobody-prints", filepath.Join(r.dir, ".recipe"))
	if out, _ := leaks.Output(); len(out) > 0 {
		r.t.Errorf("the key is in %s", out)
	}
}

// TestS3Refused names the answer of a store that does not take the keys, before any training.
func TestS3Refused(t *testing.T) {
	s := newS3(t)
	t.Setenv("AWS_SECRET_ACCESS_KEY", "another")
	r := &run{t: t, dir: t.TempDir(), recipe: "s3.hcl", trainer: "trainer.tiny.policy"}
	text := strings.NewReplacer("STORE", s.address(), "attempts = 20", "attempts = 0").Replace(s3Recipe)
	if err := os.WriteFile(filepath.Join(r.dir, r.recipe), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.cleanup)
	r.apply()
	if err := r.wait(time.Minute); err == nil {
		t.Fatal("a run whose store refuses its keys succeeds")
	}
	if said := r.story(); !strings.Contains(said, "SignatureDoesNotMatch") {
		t.Errorf("it does not say why:\n%s", said)
	}
}

// TestS3Large sends a file in parts and gets it back.
func TestS3Large(t *testing.T) {
	s := newS3(t)
	a, err := objectstore.Parse(s.address())
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := objectstore.Open(a)
	if err != nil {
		t.Fatal(err)
	}
	content := make([]byte, 300<<20)
	source := rand.NewChaCha8([32]byte{1})
	_, _ = source.Read(content)
	from, to := filepath.Join(t.TempDir(), "from"), filepath.Join(t.TempDir(), "to")
	if err := os.WriteFile(from, content, 0o600); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := bucket.PutFile(t.Context(), "model.safetensors", from); err != nil {
		t.Fatal(err)
	}
	sent := time.Now()
	sum := sha256.Sum256(content)
	err = bucket.GetFile(t.Context(), "model.safetensors", to, int64(len(content)), hex.EncodeToString(sum[:]))
	if err != nil {
		t.Fatal(err)
	}
	fetched := time.Now()
	f, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	const part = 40 << 20 // of a file that grows
	if err := bucket.PutSection(t.Context(), "part", f, part); err != nil {
		t.Fatal(err)
	}
	sum = sha256.Sum256(content[:part])
	if err := bucket.GetFile(t.Context(), "part", to+".part", part, hex.EncodeToString(sum[:])); err != nil {
		t.Error(err)
	}
	megabytes := float64(len(content)) / 1e6
	t.Logf("%.0f MB sent at %.0f MB/s, fetched at %.0f MB/s", megabytes, megabytes/sent.Sub(began).Seconds(),
		megabytes/fetched.Sub(sent).Seconds())
}
