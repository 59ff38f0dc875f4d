package scaffold_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk/kind"
)

// The use of a job's machine goes from its agent through the engine and the event log to a scrape and to a tracker,
// under the names of host and block. The executor is a program that does not say that its jobs run on the engine's
// machine, and a script stands in for nvidia-smi.
//
//docs:metrics.md Prometheus and Grafana
func TestMachinesOfJobsReachMetricsAndTrackers(t *testing.T) {
	t.Parallel()
	a := newAuthor(t)
	folder := a.create(kind.Executor, "jobs", "go")
	edit(t, filepath.Join(folder, "main.go"), func(text string) string {
		ability := regexp.MustCompile(`(?m)^(.*\bOnThisMachine = .*|func .*\) OnThisMachine\(\) \{\})$`)
		return ability.ReplaceAllString(text, "")
	})
	edit(t, filepath.Join(folder, "jobs.hcl"), func(text string) string {
		return strings.Replace(text, "learning_rate = 3e-4\n  placement { executor = executor.jobs.jobs }",
			"learning_rate = 3e-4\n  placement {\n executor = executor.jobs.jobs\n gpus = 1\n}", 1) +
			"tracking \"tensorboard\" \"curves\" { dir = \"tb\" }\n"
	})
	a.environ = append(a.environ, "PATH="+cards(t)+":"+os.Getenv("PATH"), "CUDA_VISIBLE_DEVICES=3")
	a.follow(folder, "go mod tidy\ngo build -o bin/jobs .")
	defer func() { _, _ = a.try(folder, "recipe", "destroy", "-y", "-r", "jobs.hcl") }()
	a.run(folder, "recipe", "apply", "-y", "--detach", "--var", "steps=1000000", "jobs.hcl")

	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	quoted := regexp.QuoteMeta(host)
	a.scrapes(folder,
		`recipe_machine_cpu\{run="jobs"\} 0?\.?\d`,
		`recipe_machine_cpu\{run="jobs",host="`+quoted+`",block="(trainer.tiny.policy|environment.arithmetic.sums)"\} `,
		`recipe_machine_memory_bytes\{run="jobs",host="`+quoted+`",block="[a-z.]+"\} `,
		`recipe_machine_gpu_utilization\{run="jobs",host="`+quoted+`",block="trainer.tiny.policy",gpu="3"\} 0.25`)
	a.run(folder, "recipe", "stop", "-r", "jobs.hcl")
	for _, tag := range []string{"machine/memory_bytes", "machine/" + host + "/trainer.tiny.policy/gpu/3/utilization"} {
		if !boardHas(t, filepath.Join(folder, "tb"), tag) {
			t.Errorf("the files of TensorBoard do not have %s", tag)
		}
	}
}

// edit changes a file.
func edit(t *testing.T, path string, change func(string) string) {
	t.Helper()
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	after := change(string(before))
	if after == string(before) {
		t.Fatalf("%s is not what this test changes:\n%s", path, before)
	}
	if err := os.WriteFile(path, []byte(after), 0o600); err != nil {
		t.Fatal(err)
	}
}

// cards is a folder with a program that prints what nvidia-smi prints of two GPUs.
func cards(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	script := `#!/bin/sh
case "$*" in *loop-ms*) ;; *) exit 9 ;; esac # only use is asked for
while echo '2, 97, 1024, 81920, 350.5, 61' && echo '3, 25, 10, 81920, [N/A], 40'; do sleep 1; done
`
	//nolint:gosec // a program
	if err := os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// scrapes serves the page of the folder's runs until a scrape has a line for each pattern.
func (a *author) scrapes(folder string, patterns ...string) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), 2*time.Minute)
	defer cancel()
	server := exec.CommandContext(ctx, program, "ui", "--no-token", "-r", "jobs.hcl")
	server.Dir, server.Env = folder, a.environ
	out, err := server.StdoutPipe()
	if err != nil {
		a.t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		a.t.Fatal(err)
	}
	defer func() {
		_ = server.Process.Signal(syscall.SIGINT)
		_ = server.Wait()
	}()
	said := make([]byte, 4096)
	n, err := out.Read(said)
	address := regexp.MustCompile(`http://[0-9.:]+`).Find(said[:n])
	if err != nil || address == nil {
		a.t.Fatalf("recipe ui printed %q, %v; expected an address", said[:n], err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	for {
		page := get(ctx, a.t, string(address)+"/metrics")
		missing := ""
		for _, p := range patterns {
			if !regexp.MustCompile(`(?m)^` + p).MatchString(page) {
				missing = p
			}
		}
		if missing == "" {
			return
		}
		select {
		case <-ctx.Done():
			a.t.Fatalf("within 2 minutes no scrape had %s:\n%s", missing, page)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func get(ctx context.Context, t *testing.T, url string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reply.Body.Close() }()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// boardHas reports whether a tag is in one of the event files of a folder.
func boardHas(t *testing.T, dir, tag string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "events.out.tfevents.*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no event files (%v)", dir, err)
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(data, []byte(tag)) {
			return true
		}
	}
	return false
}
