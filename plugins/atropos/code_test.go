package atropos

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

var wanted = regexp.MustCompile(`# f returns (.*)\.(?:<unk>|\n)def`)

// rightBody is the body of the function that a prompt of programs.py asks for. The test's tokenizer has no line breaks:
// bodies have one line.
func rightBody(prompt string) string {
	m := wanted.FindStringSubmatch(prompt)
	if m == nil {
		return "?"
	}
	if k, ok := strings.CutPrefix(m[1], "the larger of x and "); ok {
		return " return max(x, " + k + ")"
	}
	return " return " + strings.NewReplacer(" plus ", " + ", " times ", " * ", " minus ", " - ").Replace(m[1])
}

// TestCodeIsRun: right, wrong, failing and endless programs are distinguished.
func TestCodeIsRun(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"bubblewrap", "none"} {
		t.Run(kind, func(t *testing.T) {
			if kind == "bubblewrap" {
				needsBubblewrap(t)
			}
			codeIsRun(t, kind)
		})
	}
}

func codeIsRun(t *testing.T, kind string) {
	t.Helper()
	w := newWorld(t)
	w.reply = func(prompt string, i int) string {
		return []string{rightBody(prompt), " return __import__('subprocess').Popen(['sleep', '4711.25'])",
			" return no_such_name", " return while", " while True: pass", " return open('x', 'w')",
			" return __import__('sys').exit(0)", " return [0] * 10**10"}[i%8]
	}
	g := rolled(t, w, 1, func(c *Config) {
		script(t, "programs.py")(c)
		c.Config = map[string]any{"seconds": int64(1), "sandbox": kind}
	})[0]
	started := -0.5 // starting a process is forbidden
	if kind == "none" && os.Getuid() == 0 {
		started = 0 // root may start one, and it ends with the program
	}
	opened := 0.0 // a file in the program's own folder can be created but not written, and is no number
	if kind == "bubblewrap" {
		opened = -0.5 // the folder is read-only there
	}
	if left, _ := filepath.Glob("/proc/[0-9]*/cmdline"); slices.ContainsFunc(left, func(path string) bool {
		command, err := os.ReadFile(path)
		return err == nil && strings.HasPrefix(string(command), "sleep\x004711.25")
	}) {
		t.Error("what a program has started outlives it")
	}
	// Ending the process is no answer.
	for i, want := range []float64{1, started, -0.5, -0.5, -1, opened, -0.5, -0.5} {
		if got := g["scores"].([]any)[i].(float64); got != want {
			t.Errorf("score %d is %v, want %v (%q)", i, got, want, trained(t, g)[i])
		}
	}
}

// TestCodeIsEvaluatedOnHeldOutFunctions: an evaluation at a temperature counts all programs of a group, and asks for
// functions that training does not.
func TestCodeIsEvaluatedOnHeldOutFunctions(t *testing.T) {
	t.Parallel()
	w, h := newWorld(t), newHost()
	var mu sync.Mutex
	var prompts []string // of the requests; those of the evaluation, one for each held-out function, come first
	w.reply = func(prompt string, i int) string {
		mu.Lock()
		defer mu.Unlock()
		if i == 0 {
			prompts = append(prompts, prompt)
		}
		return []string{rightBody(prompt), " return no_such_name"}[i%2]
	}
	req := request(t, w, func(c *Config) {
		script(t, "programs.py")(c)
		c.EvaluateBefore = true
		c.Config = map[string]any{"sandbox": "none", "eval_temperature": 1.0}
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- (&Environment{}).Run(ctx, req, h) }()
	h.await(t, "an evaluation", func() bool { _, ok := h.metrics["eval/right"]; return ok })
	<-w.posted
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	if h.metrics["eval/right"] != 0.5 || h.metrics["eval/failed"] != 0.5 {
		t.Errorf("metrics %v, want half of the programs right and half failed", h.metrics)
	}
	held := prompts[:12]
	for i, prompt := range prompts {
		if i < 12 && slices.Contains(held[:i], prompt) || i >= 12 && slices.Contains(held, prompt) {
			t.Errorf("request %d of %d is for %q again; want 12 held-out functions and then others", i, len(prompts), prompt)
		}
	}
	if len(prompts) == 12 {
		t.Error("no function was trained on")
	}
}
