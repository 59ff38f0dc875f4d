package harness

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/internal/bounded"
)

// lmEvalArguments are those of `lm_eval run`. With the tokenizer, it sends ids and can compare the log-probabilities of given
// answers, which it finds behind the ids of the prompt. Without, it sends texts and can sample only.
func lmEvalArguments(p Policy, o Options, folder string) []string {
	model, route := "local-completions", "/completions"
	if o.Chat {
		model, route = "local-chat-completions", "/chat/completions"
	}
	of := []string{"base_url=" + p.BaseURL + route, "model=" + p.Model, fmt.Sprintf("num_concurrent=%d", o.Concurrency),
		"max_retries=3"}
	if p.Tokenizer != "" && !o.Chat {
		of = append(of, "tokenizer_backend=huggingface", "tokenizer="+p.Tokenizer)
	} else {
		of = append(of, "tokenizer_backend=None", "tokenized_requests=False")
	}
	args := []string{"run", "--model", model, "--model_args", strings.Join(of, ","), "--tasks",
		strings.Join(o.Tasks, ","), "--output_path", folder, "--log_samples"}
	if o.Chat {
		args = append(args, "--apply_chat_template")
	}
	return append(args, limited(o)...)
}

func lmEvalEnviron(p Policy) []string { return []string{"OPENAI_API_KEY=" + p.Key} }

// lmEvalResults reads results_TIME.json: {"results": {TASK: {"METRIC,FILTER": v, "METRIC_stderr,FILTER": e}},
// "n-samples": {TASK: {"effective": n}}}.
func lmEvalResults(files fs.FS) ([]Score, error) {
	path, err := newest(files, func(name string) bool {
		return strings.HasPrefix(name, "results_") && filepath.Ext(name) == ".json"
	})
	if err != nil {
		return nil, err
	}
	var written struct {
		Results map[string]map[string]any          `json:"results"`
		Samples map[string]struct{ Effective int } `json:"n-samples"`
	}
	if err := readJSON(files, path, &written); err != nil {
		return nil, err
	}
	var out []Score
	for task, of := range written.Results {
		for _, name := range slices.Sorted(maps.Keys(of)) {
			value, isNumber := of[name].(float64)
			metric, filter, found := strings.Cut(name, ",")
			if !isNumber || !found || strings.HasSuffix(metric, "_stderr") {
				continue
			}
			s := Score{Task: task, Metric: metric, Value: value, Samples: written.Samples[task].Effective}
			if filter != "none" {
				s.Metric += " (" + filter + ")"
			}
			if e, ok := of[metric+"_stderr,"+filter].(float64); ok {
				s.Error = &e
			}
			out = append(out, s)
		}
	}
	return out, nil
}

// mostResults bounds a file of results, which has no samples.
const mostResults = 64 << 20

func readJSON(files fs.FS, path string, into any) error {
	f, err := files.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	text, err := bounded.ReadAll(f, mostResults)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
