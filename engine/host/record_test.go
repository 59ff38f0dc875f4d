package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/proc"
	"github.com/recipe-rl/recipe/sdk/protocol"
)

// sleeper starts a process through the local runner.
func sleeper(t *testing.T, dir string) Process {
	t.Helper()
	p, err := Local{}.Start(t.Context(), Command{Argv: []string{"sleep", "600"}, Env: os.Environ(), Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(context.Background()); err != nil {
			t.Error(err)
		}
		p.Release()
	})
	return p
}

func recordOf(t *testing.T, p Process, dir string, change func(*record)) {
	t.Helper()
	keys, err := protocol.NewKeyPair()
	if err != nil {
		t.Fatal(err)
	}
	r := record{
		Format: recordFormat, Kind: "environment", Name: "ticker", RunID: "run-1", Block: "environment.ticker.a",
		Process: p.Identity(), Protocol: 1, Network: "unix", Address: filepath.Join(dir, "socket"), Keys: keys,
		Server: keys.Certificate,
	}
	change(&r)
	if err := r.save(dir); err != nil {
		t.Fatal(err)
	}
}

func alive(p Process) bool { return proc.Same(p.Identity().PID, p.Identity().Start) }

func TestAnEngineKilledInTheHandshake(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := sleeper(t, dir)
	recordOf(t, p, dir, func(r *record) { r.Network, r.Address, r.Server = "", "", nil })
	if _, err := Reattach(t.Context(), dir, nil); !errors.Is(err, ErrGone) {
		t.Errorf("reattach: %v", err)
	}
	if alive(p) {
		t.Error("the process that nobody can talk to is still there")
	}
}

//docs:survival.md the machine reboots
func TestRecordsOfProcessesThatHaveGone(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*record){
		"another boot":               func(r *record) { r.Process.Boot = "earlier" },
		"the pid is a stranger's":    func(r *record) { r.Process.Start++ },
		"the pid is nobody's":        func(r *record) { r.Process.PID = 1 << 22 },
		"the record names no moment": func(r *record) { r.Process.Start = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			stranger := sleeper(t, dir)
			recordOf(t, stranger, dir, change)
			if _, err := Reattach(t.Context(), dir, nil); !errors.Is(err, ErrGone) {
				t.Errorf("reattach: %v", err)
			}
			if err := Sweep(t.Context(), dir, nil); err != nil {
				t.Errorf("sweep: %v", err)
			}
			if !alive(stranger) {
				t.Error("a stranger was killed")
			}
			if HasRecord(dir) {
				t.Error("the record is still there")
			}
		})
	}
}

func TestAProcessThatIsNoPluginIsNotTrusted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := sleeper(t, dir)
	recordOf(t, p, dir, func(*record) {})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := Reattach(ctx, dir, nil); err == nil || errors.Is(err, ErrGone) {
		t.Errorf("reattach: %v", err)
	}
	if !alive(p) {
		t.Error("it was killed although it may belong to another run")
	}
}

func TestIdentityIsCompared(t *testing.T) {
	t.Parallel()
	r := record{RunID: "run-1", Block: "environment.ticker.a", Process: Identity{PID: 7}}
	for name, c := range map[string]struct {
		status *pluginpb.StatusResponse
		fits   bool
	}{
		"the block":    {&pluginpb.StatusResponse{Pid: 7, RunId: "run-1", Address: "environment.ticker.a"}, true},
		"not started":  {&pluginpb.StatusResponse{Pid: 7}, true},
		"another pid":  {&pluginpb.StatusResponse{Pid: 8, RunId: "run-1", Address: "environment.ticker.a"}, false},
		"another run":  {&pluginpb.StatusResponse{Pid: 7, RunId: "run-2", Address: "environment.ticker.a"}, false},
		"another name": {&pluginpb.StatusResponse{Pid: 7, RunId: "run-1", Address: "environment.ticker.b"}, false},
	} {
		if err := r.matches(c.status); (err == nil) != c.fits {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDamagedAndForeignRecords(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		"":               "damaged",
		`{"format": 1`:   "damaged",
		`{"format": 99}`: "format 99",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, RecordName), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Reattach(t.Context(), dir, nil); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), dir) {
			t.Errorf("%q: %v", content, err)
		}
	}
	if _, err := Reattach(t.Context(), t.TempDir(), nil); !errors.Is(err, ErrNoRecord) {
		t.Errorf("no record: %v", err)
	}
}

func TestRecordIsPrivate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	recordOf(t, sleeper(t, dir), dir, func(*record) {})
	info, err := os.Stat(filepath.Join(dir, RecordName))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("record: %v, %v; want mode 0600", info, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 3 { // stdout, stderr, the record
		t.Errorf("files left in the directory: %v, %v", entries, err)
	}
}
