package host_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/trust"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/executor"
)

// reader is an executor whose body names a file with credentials.
type reader struct {
	executor.Executor
	file string
}

func (r reader) Reads() []string { return []string{r.file} }

func (reader) List(context.Context, string) ([]executor.Handle, error) { return nil, nil }

// TestARecordNamesNoProgram: "yes to all that the recipe names" is no word for what the record of a run names, which
// may be another's.
func TestARecordNamesNoProgram(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ran := filepath.Join(dir, "ran")
	program, kubeconfig := filepath.Join(dir, "cluster.sh"), filepath.Join(dir, "kubeconfig")
	for path, text := range map[string]string{program: "#!/bin/sh\ntouch " + ran + "\n", kubeconfig: "users: []\n"} {
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	opened := executor.New("readers", "For a test", func(struct{}, string) (executor.Executor, error) {
		return reader{file: kubeconfig}, nil
	})
	catalog := func() *host.Catalog {
		c, err := host.NewCatalog([]*sdk.Definition{opened}, nil, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		c.Trust = &trust.Gate{Approve: true}
		c.Trust.Trust(trust.All)
		return c
	}
	untrusted := func(err error) bool {
		var refused *schema.NotTrusted
		return errors.As(err, &refused)
	}
	c := catalog()
	if _, err := c.OpenRecorded("cluster", program, cty.EmptyObjectVal, dir); !untrusted(err) {
		t.Errorf("the program that a record names: %v; expected that it is not trusted", err)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("it was run")
	}
	x, err := c.OpenRecorded("readers", "", cty.EmptyObjectVal, dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.List(t.Context(), "run"); !untrusted(err) {
		t.Errorf("the credentials that a record names: %v; expected that they are not trusted", err)
	}

	// What the recipe names, too, is covered by the word for it.
	if x, err = c.OpenExecutor("readers", cty.EmptyObjectVal, dir); err != nil {
		t.Fatal(err)
	}
	if _, err := x.List(t.Context(), "run"); err != nil {
		t.Errorf("the credentials that the recipe names: %v", err)
	}
	if x, err = c.OpenRecorded("readers", "", cty.EmptyObjectVal, dir); err != nil {
		t.Fatal(err)
	}
	if _, err := x.List(t.Context(), "run"); err != nil {
		t.Errorf("the credentials that recipe and record name: %v", err)
	}
}
