package harness

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

var (
	policy  = Policy{BaseURL: "http://127.0.0.1:7/v1", Key: "s3cret", Model: "org/m", Tokenizer: "/models/m"}
	options = Options{Tasks: []string{"a", "b"}, Limit: 5, Concurrency: 4, Extra: []string{"--seed", "3"}}
)

// The key is in the environment alone: arguments can be read by every user of a machine.
func TestCommands(t *testing.T) {
	t.Parallel()
	chat := options
	chat.Chat, chat.Limit = true, 0
	for _, c := range []struct {
		name string
		of   string
		o    Options
		argv string
		env  []string
	}{
		{"log-probabilities need the tokenizer", "lm-eval", options, "py -m lm_eval run --model local-completions " +
			"--model_args base_url=http://127.0.0.1:7/v1/completions,model=org/m,num_concurrent=4,max_retries=3," +
			"tokenizer_backend=huggingface,tokenizer=/models/m --tasks a,b --output_path /out --log_samples --limit 5 " +
			"--seed 3", []string{"OPENAI_API_KEY=s3cret"}},
		{"messages need none", "lm-eval", chat, "py -m lm_eval run --model local-chat-completions " +
			"--model_args base_url=http://127.0.0.1:7/v1/chat/completions,model=org/m,num_concurrent=4,max_retries=3," +
			"tokenizer_backend=None,tokenized_requests=False --tasks a,b --output_path /out --log_samples " +
			"--apply_chat_template --seed 3", []string{"OPENAI_API_KEY=s3cret"}},
		{"a task is a file or a name", "inspect", options, "py -m inspect_ai eval a b --model openai-api/recipe/org/m " +
			"--log-dir /out --log-format json --max-connections 4 --display plain --limit 5 --seed 3",
			[]string{"RECIPE_API_KEY=s3cret", "RECIPE_BASE_URL=http://127.0.0.1:7/v1"}},
	} {
		argv, env := Find(c.of).command(Call{Python: "py", Policy: policy, Options: c.o, Folder: "/out"})
		if got := strings.Join(argv, " "); got != c.argv || !slices.Equal(env, c.env) {
			t.Errorf("%s: the command is\n%s %s; want\n%s %s", c.name, got, env, c.argv, c.env)
		}
	}
	if Find("other") != nil || !slices.IsSorted(Names()) {
		t.Errorf("the names are %v", Names())
	}
}

func TestResults(t *testing.T) {
	t.Parallel()
	e := 0.05
	for _, c := range []struct {
		name  string
		of    string
		files map[string]string
		want  []Score
		err   string
	}{
		{name: "each metric and filter of each task", of: "lm-eval", files: map[string]string{
			"m/results_2026-01-01.json": `{"results":{"old":{"acc,none":0}}}`,
			"m/results_2026-01-02.json": `{"results":{"b":{"alias":"b","acc,none":0.5,"acc_stderr,none":0.05},
				"a":{"em,strict":1,"em_stderr,strict":"N/A","em,none":0.25}},"n-samples":{"a":{"original":9,"effective":4}}}`,
			"m/samples_b_2026-01-02.jsonl": "{}"},
			want: []Score{{"a", "em", .25, nil, 4}, {"a", "em (strict)", 1, nil, 4}, {"b", "acc", .5, &e, 0}}},
		{name: "nothing", of: "lm-eval", files: map[string]string{"lm-eval.log": "x"}, err: "no file of results"},
		{name: "no score", of: "lm-eval", files: map[string]string{"results_1.json": `{"results":{}}`}, err: "no results"},
		{name: "no JSON", of: "lm-eval", files: map[string]string{"results_1.json": `{`},
			err: "results_1.json: unexpected end"},
		{name: "a log of each task", of: "inspect", files: map[string]string{
			"1.json": `{"eval":{"task":"sums"},"results":{"completed_samples":4,"scores":[{"name":"includes",
				"metrics":{"accuracy":{"value":0.5},"stderr":{"value":0.05}}}]}}`,
			"2.json": `{"eval":{"task":"two"},"results":{"completed_samples":2,"scores":[
				{"name":"x","metrics":{"max":{"value":1},"stderr":{"value":0.05},"none":{"value":null}}},
				{"name":"y","metrics":{"mean":{"value":2}}}]}}`,
			"3.json": `{"eval":{"task":"failed"},"status":"error"}`, "inspect.log": "x"},
			want: []Score{{"sums", "accuracy", .5, &e, 4}, {"two", "x/max", 1, nil, 2}, {"two", "y/mean", 2, nil, 2}}},
		{name: "only failures", of: "inspect", files: map[string]string{"3.json": `{"status":"error"}`}, err: "no results"},
	} {
		files := fstest.MapFS{}
		for name, text := range c.files {
			files[name] = &fstest.MapFile{Data: []byte(text)}
		}
		got, err := Find(c.of).Results(files)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %q", c.name, err, c.err)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v; want %+v", c.name, got, err, c.want)
		}
	}
}
