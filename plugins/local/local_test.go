package local

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk/executor"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/proc"
)

func TestCompliance(t *testing.T) {
	t.Parallel()
	plugintest.Executor(t, plugintest.ExecutorSuite{
		Staged: true,
		Open:   func(dir string) (executor.Executor, error) { return New(dir), nil },
	})
}

// TestComplianceOfAPlugin asks the executor over the protocol of plugins.
func TestComplianceOfAPlugin(t *testing.T) {
	t.Parallel()
	plugintest.Compliance(t, Plugin(), plugintest.Suite{Config: func(*testing.T) any { return Config{} }})
}

// TestARecordNamesNoOtherFile: a record of a run that came from elsewhere does not decide which file is shown.
func TestARecordNamesNoOtherFile(t *testing.T) {
	t.Parallel()
	l, dir := New(t.TempDir()).(*local), t.TempDir()
	secret, own := filepath.Join(dir, "id_ed25519"), filepath.Join(dir, "agent-1.log")
	err := errors.Join(os.WriteFile(secret, []byte("secret"), 0o600), os.Symlink(secret, own),
		os.MkdirAll(l.dir, 0o700))
	if err != nil {
		t.Fatal(err)
	}
	for n, path := range []string{secret, own} {
		k := executor.Key{Run: "01J", Block: "trainer.tiny.a", Attempt: 1}
		if err := l.write(job{Key: k, Program: proc.Handle{Log: path}}); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := l.Logs(t.Context(), executor.Handle{Key: k}, &out); err == nil || out.Len() > 0 {
			t.Errorf("%d: %v, %q", n, err, out.String())
		}
	}
}
