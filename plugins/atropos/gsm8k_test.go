package atropos

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// check runs Python statements against the module gsm8k of recipes/environments, with the real libraries.
func check(t *testing.T, statements string, args ...string) {
	t.Helper()
	prelude := "import sys\nsys.path.insert(0, sys.argv[1])\nimport gsm8k as g\n"
	argv := append([]string{"-c", prelude + statements, filepath.Join(repository(t), "recipes", "environments")}, args...)
	cmd := exec.CommandContext(t.Context(), python(t), argv...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "HF_HUB_OFFLINE=1", "HF_HOME="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestGSM8KData: the library that loads the data set from the hub reads both splits from a folder of the same layout
// here; the seed decides the order of questions; gold answers have no commas.
func TestGSM8KData(t *testing.T) {
	t.Parallel()
	check(t, `
import asyncio, json, os, pathlib
folder = pathlib.Path("openai/gsm8k/main")
folder.mkdir(parents=True)
for split, n in (("train", 50), ("test", 7)):
    with open(folder / f"{split}.jsonl", "w") as f:
        for i in range(n):
            f.write(json.dumps({"question": f"{split} {i}?", "answer": f"Steps.\n#### {i + 1000:,}"}) + "\n")
with open("openai/gsm8k/README.md", "w") as f:
    f.write("---\nconfigs:\n- config_name: main\n  data_files:\n  - split: train\n    path: main/train.jsonl\n"
            "  - split: test\n    path: main/test.jsonl\n---\n")

def order(seed):
    env = g.GSM8K.__new__(g.GSM8K)
    env.config = g.GSM8KConfig(seed=seed)
    asyncio.run(env.setup())
    assert len(env.train) == 50 and len(env.test) == 7, (len(env.train), len(env.test))
    assert env.test[3] == {"question": "test 3?", "gold": "1003"}, env.test[3]
    return [row["question"] for row in env.train]

first = order(42)
assert first == order(42), "one seed, two orders"
assert first != order(43) and first != sorted(first, key=lambda q: int(q.split()[1][:-1])), "the seed decides nothing"
assert sorted(first) == sorted(f"train {i}?" for i in range(50)), "questions are lost or repeated"
`)
}

// TestGSM8KChatTemplate: prompts of rollouts are rendered by the template of the settings.
func TestGSM8KChatTemplate(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data.jsonl")
	write(t, data, `{"question":"Legs?","answer":"#### 8"}`+"\n")
	check(t, `
import asyncio, types
for template, want in ((None, "own"), ("{{ messages[0]['content'] }}", "{{ messages[0]['content'] }}")):
    env = g.GSM8K.__new__(g.GSM8K)
    env.tokenizer = types.SimpleNamespace(chat_template="own")
    env.config = g.GSM8KConfig(train_path=sys.argv[2], test_path=sys.argv[2], chat_template=template)
    asyncio.run(env.setup())
    assert env.tokenizer.chat_template == want, (template, env.tokenizer.chat_template)
`, data)
}

// TestGSM8KScoring: an answer is right when the content of the last box equals the gold number, which math_verify
// compares symbolically.
func TestGSM8KScoring(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data.jsonl")
	write(t, data, `{"question":"How many?","answer":"Two.\n#### 1,234"}`+"\n")
	check(t, `
assert g.verify is not None, "math_verify is not installed: answers would be compared as numbers"
rows = g.load(sys.argv[2], "train")
assert rows == [{"question": "How many?", "gold": "1234"}], rows
for text, gold, want in [
    (r"so \boxed{42}", "42", True), (r"\boxed{1,234}", "1234", True),
    (r"\boxed{41} no, \boxed{42}", "42", True), (r"\boxed{42.0}", "42", True),
    ("42", "42", False), (r"\boxed{43}", "42", False),
    (r"<think>\boxed{42}</think> \boxed{7}", "42", False), (r"\boxed{\text{42}}", "42", True),
    (r"\boxed{4", "4", False),
    # what only a symbolic comparison finds equal
    (r"\boxed{\frac{84}{2}}", "42", True), (r"\boxed{\sqrt{1764}}", "42", True),
    (r"\boxed{6 \times 7}", "42", True),
    (r"\boxed{2^5 + 10}", "42", True),
    (r"\boxed{\frac{84}{3}}", "42", False), (r"\boxed{6 \times 6}", "42", False),
]:
    assert g.is_right(text, gold) == want, (text, gold)
`, data)
}

// TestGSM8KLengthPenalty: in a group of right answers those beyond half of the allowed length get less, in proportion;
// in a group with a wrong answer length has no effect.
func TestGSM8KLengthPenalty(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data.jsonl")
	write(t, data, `{"question":"How many legs have two cats?","answer":"#### 8"}`+"\n")
	for name, c := range map[string]struct {
		last string // the answer of the fourth completion
		want string
	}{
		"all right": {"8", "[1 1 0.75 0.25]"},
		"one wrong": {"9", "[1 1 1 -1]"},
	} {
		t.Run(name, func(t *testing.T) {
			// Not in parallel: each imports transformers, and there are few cores.
			w := newWorld(t)
			w.reply = func(_ string, i int) string { // of 9, 19, 25 and 35 characters, each a token
				answer := "8"
				if i == 3 {
					answer = c.last
				}
				return strings.Repeat("1", []int{0, 10, 16, 26}[i]) + `\boxed{` + answer + `}`
			}
			g := rolled(t, w, 1, func(cfg *Config) {
				script(t, "gsm8k.py")(cfg)
				cfg.GroupSize, cfg.MaxTokenLength = 4, 40
				cfg.Config = map[string]any{"train_path": data, "test_path": data, "system_prompt": ""}
				cfg.Tokenizer = chatTokenizer(t)
			})[0]
			if got := fmt.Sprint(g["scores"]); got != c.want {
				t.Errorf("scores %s of answers of 9, 19, 25 and 35 tokens out of 40, want %s", got, c.want)
			}
		})
	}
}

// TestEvaluationEverySoManySteps: when the trainer's step passes a multiple of steps_per_eval, the environment answers
// its held-out questions greedily and reports the score by itself.
func TestEvaluationEverySoManySteps(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data.jsonl")
	write(t, data, `{"question":"How many legs have two cats?","answer":"#### 8"}`+"\n"+
		`{"question":"How many legs have three cats?","answer":"#### 12"}`+"\n")
	w, h := newWorld(t), newHost()
	w.reply = func(_ string, i int) string { return fmt.Sprintf(`\boxed{%d}`, 8+i) }
	fails := true // the server cannot answer the first evaluation
	w.chat = func(out http.ResponseWriter, r *http.Request) {
		greedy := decode(r)["temperature"] == 0.0
		w.mu.Lock()
		defer w.mu.Unlock()
		if fails {
			http.Error(out, "the model has no chat template", http.StatusBadRequest)
			return
		}
		if greedy {
			w.evaluated++
		}
		_ = json.NewEncoder(out).Encode(map[string]any{"choices": []any{map[string]any{"index": 0, "finish_reason": "stop",
			"message": map[string]any{"role": "assistant", "content": `\boxed{8}`}}}})
	}
	every := int64(2)
	req := request(t, w, func(c *Config) {
		script(t, "gsm8k.py")(c)
		c.GroupSize, c.MaxTokenLength, c.StepsPerEval, c.Tokenizer = 4, 40, &every, chatTokenizer(t)
		c.Config = map[string]any{"train_path": data, "test_path": data, "system_prompt": ""}
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- (&Environment{}).Run(ctx, req, h) }()
	h.await(t, "the error of the evaluation that failed", func() bool {
		return slices.ContainsFunc(h.logs, func(line string) bool {
			return strings.HasPrefix(line,
				"error: the evaluation at step")
		})
	})
	w.mu.Lock()
	fails = false
	w.mu.Unlock()
	h.await(t, "an evaluation", func() bool { _, ok := h.metrics["eval/percent_correct"]; return ok })
	h.mu.Lock()
	score := h.metrics["eval/percent_correct"]
	h.mu.Unlock()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	if score != 0.5 {
		t.Errorf("eval/percent_correct is %v, want 0.5: the first of two held-out questions is answered rightly", score)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.evaluated < 2 {
		t.Errorf("%d held-out questions were asked greedily, want both", w.evaluated)
	}
}

// chatTokenizer is the test's tokenizer with a chat template.
func chatTokenizer(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tokenizer")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "tokenizer"))); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "chat_template.jinja"), "{% for m in messages %}[{{ m.role }}]{{ m.content "+
		"}}{% endfor %}[assistant]")
	return dir
}
