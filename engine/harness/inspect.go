package harness

import (
	"io/fs"
	"path/filepath"
	"strconv"
)

// service is the name by which Inspect reads the address and the key from the environment.
const service = "recipe"

// inspectArguments are those of `inspect eval`. Its provider openai-api takes any OpenAI-compatible server, by Chat Completions.
func inspectArguments(p Policy, o Options, folder string) []string {
	args := append([]string{"eval"}, o.Tasks...)
	args = append(args, "--model", "openai-api/"+service+"/"+p.Model, "--log-dir", folder, "--log-format", "json",
		"--max-connections", strconv.Itoa(o.Concurrency), "--display", "plain")
	return append(args, limited(o)...)
}

func inspectEnviron(p Policy) []string {
	return []string{"RECIPE_API_KEY=" + p.Key, "RECIPE_BASE_URL=" + p.BaseURL}
}

// inspectResults reads the log of each task.
func inspectResults(files fs.FS) ([]Score, error) {
	var out []Score
	err := fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || filepath.Ext(path) != ".json" {
			return err
		}
		var log struct {
			Eval struct {
				Task string `json:"task"`
			} `json:"eval"`
			Results *struct {
				Completed int `json:"completed_samples"`
				Scores    []struct {
					Name    string `json:"name"`
					Metrics map[string]struct {
						Value *float64 `json:"value"`
					} `json:"metrics"`
				} `json:"scores"`
			} `json:"results"`
		}
		if err := readJSON(files, path, &log); err != nil || log.Results == nil {
			return err
		}
		for _, s := range log.Results.Scores {
			for name, m := range s.Metrics {
				if m.Value == nil || name == "stderr" {
					continue
				}
				one := Score{Task: log.Eval.Task, Metric: name, Value: *m.Value, Samples: log.Results.Completed}
				if len(log.Results.Scores) > 1 {
					one.Metric = s.Name + "/" + name
				}
				if name == "accuracy" || name == "mean" { // stderr is of these
					one.Error = s.Metrics["stderr"].Value
				}
				out = append(out, one)
			}
		}
		return nil
	})
	return out, err
}
