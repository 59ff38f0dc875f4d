package rescore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/internal/samples"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// letters is a scorer: the letters of a completion that its task counts.
type letters struct {
	mu    sync.Mutex
	calls int
	most  int // groups before it fails; 0: it does not
}

func (l *letters) Rescore(_ context.Context, g sdk.RecordedGroup) (sdk.RescoredGroup, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls++; l.most > 0 && l.calls > l.most {
		return sdk.RescoredGroup{}, errors.New("the environment has ended")
	}
	var task struct{ Data struct{ Letter string } }
	if err := json.Unmarshal(g.Task, &task); err != nil {
		return sdk.RescoredGroup{}, err
	}
	var out sdk.RescoredGroup
	for _, c := range g.Completions {
		if c.Text == "" {
			out.Completions = append(out.Completions, sdk.RescoredCompletion{Failed: "it is empty"})
			continue
		}
		score := float64(strings.Count(c.Text, task.Data.Letter))
		out.Completions = append(out.Completions, sdk.RescoredCompletion{Score: &score,
			Metrics: map[string]float64{"length": float64(len(c.Text))}})
	}
	return out, nil
}

// recorded is a group whose completions have these texts, and scores in the run.
func recorded(texts []string, scores []float64) *trajectory.Group {
	g := &trajectory.Group{Scores: scores, PolicyVersion: trajectory.At(3),
		GroupOverrides: map[string]any{trajectory.OverrideExpected: "aa"},
		Task:           json.RawMessage(`{"v":1,"messages":0,"data":{"letter":"a"}}`)}
	var said [][]map[string]string
	for _, text := range texts {
		tokens, masks, logprobs := []int{1, 2}, []int{-100, -100}, []float64{1, 1}
		for _, c := range text + "." {
			tokens, masks, logprobs = append(tokens, int(c)), append(masks, int(c)), append(logprobs, -0.5)
		}
		g.Tokens, g.Masks = append(g.Tokens, tokens), append(g.Masks, masks)
		g.InferenceLogprobs = append(g.InferenceLogprobs, logprobs)
		g.Overrides = append(g.Overrides, map[string]any{trajectory.OverrideFinish: "stop", trajectory.OverrideStop: "."})
		said = append(said, []map[string]string{{"role": "user", "content": "a?"},
			{"role": "assistant", "content": text + "."}})
	}
	g.Messages, _ = json.Marshal(said)
	return g
}

// run is a run directory with groups of the environment letters, and one of another.
func run(t *testing.T, groups ...*trajectory.Group) string {
	t.Helper()
	dir := t.TempDir()
	w, err := samples.NewWriter(filepath.Join(dir, "samples", "trajectories.builtin.default"),
		samples.Limits{Bytes: 1 << 30}, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	for i, g := range groups {
		body, err := json.Marshal(g)
		if err != nil {
			t.Fatal(err)
		}
		w.Post(samples.Line{ID: uint64(i) + 1, Environment: fmt.Sprintf("letters_%d", i%2), Sequences: len(g.Tokens),
			Versions: []int64{2, 3}}, body)
	}
	w.Post(samples.Line{ID: 99, Environment: "lettersmore_0"}, []byte(`{}`))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func open(t *testing.T, dir string) *Record {
	t.Helper()
	r, err := Open(dir, "letters", false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func results(t *testing.T, dir string) *File {
	t.Helper()
	f, err := OpenFile(t.Context(), dir, environment(), Header{Digest: "d"})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func environment() addr.Block {
	return addr.Block{Kind: kind.Environment, Plugin: "reward", Name: "letters"}
}

// What the scorer gets is what the run's got: the text without the stop text, the tokens without the prompt.
func TestAScorerGetsWhatTheRunsGot(t *testing.T) {
	t.Parallel()
	g := recorded([]string{"ab", "b"}, []float64{1, 0})
	g.Overrides[1] = map[string]any{trajectory.OverrideFailed: "broken", trajectory.OverrideFinish: "length"}
	g.Masks[1] = slices.Repeat([]int{-100}, len(g.Masks[1]))
	r := open(t, run(t, g))
	got, err := r.groups[0].read()
	if err != nil || got.Unable != "" {
		t.Fatal(got, err)
	}
	want := []sdk.RecordedCompletion{
		{Text: "ab", Stop: ".", Finish: "stop", Tokens: []int{'a', 'b', '.'}, Logprobs: []float64{-0.5, -0.5, -0.5}},
		{Text: "b.", Finish: "length", Tokens: []int{'b', '.'}, Logprobs: []float64{-0.5, -0.5}}}
	if !reflect.DeepEqual(got.Completions, want) {
		t.Errorf("the scorer gets %+v", got.Completions)
	}
	if *got.Before[0] != 1 || got.Before[1] != nil || got.Expected != "aa" {
		t.Errorf("scores %v, expected %q", got.Before, got.Expected)
	}
}

// Blocks of two modules have one name; their tasks name the block.
func TestGroupsOfANamesake(t *testing.T) {
	t.Parallel()
	var groups []*trajectory.Group
	for _, module := range []string{"a", "b", "b"} {
		g := recorded([]string{"a"}, []float64{1})
		g.Task = json.RawMessage(`{"v":1,"environment":"module.` + module + `.environment.reward.letters","data":{}}`)
		groups = append(groups, g)
	}
	r := open(t, run(t, groups...))
	r.Only("module.b.environment.reward.letters")
	if r.Groups() != 2 || r.groups[0].key.ID != 2 {
		t.Errorf("%d groups of 2, %+v", r.Groups(), r.groups)
	}
}

func TestWhatCannotBeScoredAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*trajectory.Group)
		want   string
	}{
		"no task":     {func(g *trajectory.Group) { g.Task = nil }, noTask},
		"no messages": {func(g *trajectory.Group) { g.Messages = nil }, noAnswer},
		"parts": {func(g *trajectory.Group) {
			for _, o := range g.Overrides {
				o[trajectory.OverrideRollout] = 0
			}
		}, parts},
		"data left out": {func(g *trajectory.Group) {
			g.Task = json.RawMessage(`{"v":1,"messages":0,"omitted":"its data is no JSON"}`)
		}, "its data is no JSON"},
	} {
		g := recorded([]string{"a", "b"}, []float64{1, 0})
		c.change(g)
		first, reasons := open(t, run(t, g)).First()
		if first != nil || reasons[c.want] != 1 {
			t.Errorf("%s: %v", name, reasons)
		}
	}
}

// What was scored before an end is not scored again, and a line that was cut off is.
//
//docs:rescoring.md It can be killed
func TestRescoringGoesOn(t *testing.T) {
	t.Parallel()
	var groups []*trajectory.Group
	for range 200 {
		groups = append(groups, recorded([]string{"a", "b"}, []float64{1, 0}))
	}
	dir := run(t, groups...)
	r, f := open(t, dir), results(t, dir)
	if err := r.Fill(t.Context(), &letters{most: 50}, f, nil, nil); err == nil {
		t.Fatal("the failure is lost")
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(f.Path)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte("\n")); n != 51 {
		t.Fatalf("%d lines are kept of 50 results", n)
	}
	if err := os.WriteFile(f.Path, text[:len(text)-20], 0o600); err != nil {
		t.Fatal(err)
	}
	f = results(t, dir)
	scorer, done := &letters{}, 0
	err = r.Fill(t.Context(), scorer, f, nil, func(n, _ int) { done = n })
	if err != nil || scorer.calls != 151 || done != 200 || r.Missing(f) != 0 {
		t.Errorf("scored %d of 151 missing, %d are done: %v", scorer.calls, done, err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	f = results(t, dir)
	defer func() { _ = f.Close() }()
	if len(f.Done) != 200 {
		t.Errorf("%d of 200 results are read back", len(f.Done))
	}
}

// Results of the functions that were last used are kept.
func TestOldResultsAreRemoved(t *testing.T) {
	t.Parallel()
	dir := run(t)
	for i := range kept + 2 {
		f, err := OpenFile(t.Context(), dir, environment(), Header{Digest: fmt.Sprintf("d%02d", i)})
		if err != nil {
			t.Fatal(err)
		}
		used := time.Unix(int64(1000-i), 0) // the first is the newest
		if err := errors.Join(f.Close(), os.Chtimes(f.Path, used, used)); err != nil {
			t.Fatal(err)
		}
	}
	left, err := os.ReadDir(filepath.Join(dir, Folder))
	if err != nil || len(left) != kept || !strings.HasSuffix(left[0].Name(), "d00") ||
		!strings.HasSuffix(left[kept-1].Name(), fmt.Sprintf("d%02d", kept+1)) {
		t.Errorf("%v are left (%v)", left, err)
	}
}

func TestAFileOfSomethingElseIsLeft(t *testing.T) {
	t.Parallel()
	dir := run(t)
	f := results(t, dir)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	const other = "something else\n"
	if err := os.WriteFile(f.Path, []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenFile(t.Context(), dir, environment(), Header{Digest: "d"}); err == nil {
		t.Error("a file of something else is taken for results")
	}
	if text, _ := os.ReadFile(f.Path); string(text) != other {
		t.Errorf("it was changed: %q", text)
	}
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.WriteFile(elsewhere, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, link := range map[string]func(string, string) error{"link": os.Symlink, "second name": os.Link} {
		if err := errors.Join(os.Remove(f.Path), link(elsewhere, f.Path)); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenFile(t.Context(), dir, environment(), Header{Digest: "d"}); err == nil {
			t.Errorf("a %s to a file elsewhere is written to", name)
		}
		if info, err := os.Stat(elsewhere); err != nil || info.Size() != 0 {
			t.Errorf("through a %s %v was written", name, info)
		}
	}
}

func TestComparison(t *testing.T) {
	t.Parallel()
	failed := recorded([]string{"a", "", "aa"}, []float64{1, 1, 2})
	left := recorded([]string{"a"}, []float64{0})
	left.Task = nil
	dir := run(t,
		recorded([]string{"a", "b", "aa"}, []float64{1, 0, 2}),   // the same
		recorded([]string{"a", "b", "aa"}, []float64{0, 1, 0.5}), // the other way round
		recorded([]string{"b", "b"}, []float64{0, 1}),            // loses its differences
		recorded([]string{"a", "b"}, []float64{0, 0}),            // gains them
		failed, left)
	r, f := open(t, dir), results(t, dir)
	defer func() { _ = f.Close() }()
	if err := r.Fill(t.Context(), &letters{}, f, nil, nil); err != nil {
		t.Fatal(err)
	}
	c, err := r.Compare(f, nil)
	if err != nil {
		t.Fatal(err)
	}
	near := func(name string, got, want float64) {
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("%s is %v, expected %v", name, got, want)
		}
	}
	if c.Groups != 6 || c.Rollouts != 14 || c.Scored != 12 || c.Failed != 1 || c.Unable != 1 || c.Compared != 12 {
		t.Errorf("counts: %+v", c)
	}
	near("the mean before", c.Before, 8.5/12)
	near("the mean after", c.After, 10.0/12)
	near("equal", c.Equal, 7.0/12)            // all of the first, one of the third, one of the fourth, two of the fifth
	near("the same sign", c.SameSign, 5.0/12) // all of the first, two of the fifth
	if c.Kendall == nil || c.KendallGroups != 3 {
		t.Fatalf("Kendall's tau %v of %d groups", c.Kendall, c.KendallGroups)
	}
	near("Kendall's tau", *c.Kendall, (1-1.0/3+1)/3)
	if want := (Informative{Of: 5, Before: 4, After: 4, Gained: 1, Lost: 1}); c.Informative != want {
		t.Errorf("informative groups: %+v", c.Informative)
	}
	if want := []Reason{{"it is empty", 1}, {noTask, 1}}; !reflect.DeepEqual(c.Reasons, want) {
		t.Errorf("reasons: %v", c.Reasons)
	}
	if len(c.Changes) != 3 || c.Changes[0].Completion != "aa." || c.Changes[0].After != 2 || c.Changes[0].Prompt != "a?" ||
		c.Changes[1].Times != 2 {
		t.Errorf("changes: %+v", c.Changes)
	}
}

// A function scores groups without a task, too: it gets the conversation, and the right answer where it is recorded.
func TestAFunctionNeedsNoTask(t *testing.T) {
	t.Parallel()
	g := recorded([]string{"a", "b"}, []float64{1, 0})
	g.Task = nil
	talk := recorded([]string{"ab"}, []float64{1})
	talk.Task, talk.Masks[0][3] = nil, -100
	r, err := Open(run(t, talk, g), "letters", true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	first, reasons := r.First()
	if first == nil || first.Key.ID != 2 || reasons[noAnswer] != 1 {
		t.Fatalf("%+v, %v", first, reasons)
	}
	first.ForFunction()
	const want = `{"data":{"answer":"aa","prompt":[{"role":"user","content":"a?"}]},"messages":1,"v":1}`
	if string(first.Task) != want || first.Completions[0].Text != "a" {
		t.Errorf("the function gets %s, expected %s, and %+v", first.Task, want, first.Completions)
	}
}

// A function scores rollouts of several turns: it gets the conversation behind the prompt, which may have examples of
// answers. Tokens between the answers stay untrained.
//
//docs:rescoring.md What the function gets
func TestAFunctionScoresConversations(t *testing.T) {
	t.Parallel()
	say := func(of ...string) json.RawMessage { // a system message, and turns of user, assistant, tool
		text := `[{"role":"system","content":"s"},{"role":"user","content":"q"},{"role":"assistant","content":"example"},` +
			`{"role":"user","content":"q2"}`
		for i, content := range of {
			text += fmt.Sprintf(`,{"role":%q,"content":%q}`, []string{"assistant", "tool"}[i%2], content)
		}
		return json.RawMessage(text + "]")
	}
	conversations := func(said ...json.RawMessage) json.RawMessage {
		text, err := json.Marshal(said)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	const masked = -100
	g := recorded([]string{"abab", "ab", "bb"}, []float64{1, 0, 1})
	g.Task, g.Messages = nil, conversations(say("call", "result", "a"), say("a"), say("call", "result"))
	g.Masks[0] = []int{masked, masked, 'a', masked, 'a', 'b', '.'}
	g.Masks[2] = []int{masked, masked, masked, masked, masked} // it failed in the run
	apart := recorded([]string{"abab", "ab"}, []float64{1, 0})
	apart.Task, apart.Masks[0] = nil, []int{masked, masked, 'a', masked, 'a', 'b', '.'}
	apart.Messages = conversations(say("call", "result", "a"), json.RawMessage(`[{"role":"user","content":"other"},`+
		`{"role":"user","content":"x"},{"role":"user","content":"y"},{"role":"user","content":"z"},`+
		`{"role":"assistant","content":"a"}]`))
	dir := run(t, g, apart)
	r, err := Open(dir, "letters", true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	first, reasons := r.First()
	if first == nil || first.Key.ID != 1 || reasons[unclear] != 1 {
		t.Fatalf("%+v, %v", first, reasons)
	}
	if other, err := r.groups[1].read(); err != nil || other.Unable != unclear {
		t.Errorf("conversations with other prompts: %v, %v", other, err)
	}
	if n := len(messagesOf(first.RecordedGroup)); n != 4 {
		t.Errorf("the prompt has %d messages, expected 4", n)
	}
	for i, want := range []sdk.RecordedCompletion{
		{Text: "a", Messages: json.RawMessage(`[{"role":"assistant","content":"call"},{"role":"tool","content":"result"},` +
			`{"role":"assistant","content":"a"}]`)},
		{Text: "a", Messages: json.RawMessage(`[{"role":"assistant","content":"a"}]`)},
		{Text: "call", Messages: json.RawMessage(`[{"role":"assistant","content":"call"},` +
			`{"role":"tool","content":"result"}]`)},
	} {
		if got := first.Completions[i]; got.Text != want.Text || string(got.Messages) != string(want.Messages) ||
			len(got.Tokens) != len(g.Tokens[i])-2 {
			t.Errorf("rollout %d is scored as %q %s, expected %q %s", i, got.Text, got.Messages, want.Text, want.Messages)
		}
	}
	var to bytes.Buffer
	w := &Writer{To: &to, Least: func(int) int { return 1 }}
	score := func(v float64) sdk.RescoredCompletion { return sdk.RescoredCompletion{Score: &v} }
	if err := w.Add(first, Result{Completions: []sdk.RescoredCompletion{score(2), score(0), score(1)}}); err != nil {
		t.Fatal(err)
	}
	var got trajectory.Group
	if err := json.Unmarshal(to.Bytes(), &got); err != nil || !reflect.DeepEqual(got.Masks, g.Masks) ||
		got.Scores[0] != 2 {
		t.Errorf("written: %v, masks %v, expected %v", err, got.Masks, g.Masks)
	}
}

// Reasons that quote a completion are one reason.
func TestReasonsAreCountedTogether(t *testing.T) {
	t.Parallel()
	c := &comparing{reasons: map[string]*Reason{}}
	for _, text := range []string{`no number: 'a' (of "b")`, "another", `no number: 'c' (of "d")`} {
		c.reason(text, 1)
	}
	if got, want := c.done().Reasons, []Reason{{`no number: 'a' (of "b")`, 2}, {"another", 1}}; !slices.Equal(got, want) {
		t.Errorf("counted %v", got)
	}
}

// What is written is a group with the new scores and, where a rollout failed or failed no more, the masks for them.
//
//docs:rescoring.md Train on them
func TestWhatIsWritten(t *testing.T) {
	t.Parallel()
	g := recorded([]string{"a", "", "aa", "aaa"}, []float64{1, 1, 1, 1})
	g.Overrides[3][trajectory.OverrideFailed] = "broken"
	g.Masks[3] = slices.Repeat([]int{-100}, len(g.Masks[3]))
	g.Advantages = [][]float64{{1}, {1}, {1}, {1}}
	dir := run(t, g, recorded([]string{"b", "b"}, []float64{1, 0}), recorded([]string{"a", "", "", ""},
		[]float64{1, 0, 0, 0}))
	r, f := open(t, dir), results(t, dir)
	defer func() { _ = f.Close() }()
	if err := r.Fill(t.Context(), &letters{}, f, nil, nil); err != nil {
		t.Fatal(err)
	}
	var to bytes.Buffer
	w := &Writer{To: &to, Least: func(n int) int { return n / 2 }}
	if _, err := r.Compare(f, w.Add); err != nil {
		t.Fatal(err)
	}
	if w.Written != (Written{Groups: 1, Uninformative: 1, Failed: 1}) {
		t.Errorf("%+v", w.Written)
	}
	var got trajectory.Group
	if err := json.Unmarshal(to.Bytes(), &got); err != nil || strings.Count(to.String(), "\n") != 1 {
		t.Fatal(err, to.String())
	}
	if want := []float64{1, 2, 2, 3}; !slices.Equal(got.Scores, want) {
		t.Errorf("scores %v, expected %v", got.Scores, want)
	}
	if got.Advantages != nil || !slices.Equal(got.Masks[1], []int{-100, -100, -100}) ||
		!slices.Equal(got.Masks[3], []int{-100, -100, 'a', 'a', 'a', '.'}) {
		t.Errorf("advantages %v, masks %v", got.Advantages, got.Masks)
	}
	if got.Overrides[1][trajectory.OverrideFailed] != "it is empty" ||
		got.Overrides[3][trajectory.OverrideFailed] != nil || got.Overrides[0][trajectory.OverrideStop] != "." ||
		got.PolicyVersion.Max != 3 || len(got.Task) == 0 {
		t.Errorf("written: %s", to.String())
	}
}

// A reward function gets the members of a task's data as columns, with the prompt and the right answer.
func TestColumns(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]string{
		`{"letter":"a","answer":"b"}`: `{"answer":"b","letter":"a","prompt":"a?"}`,
		`{"prompt":"own"}`:            `{"answer":"aa","prompt":"own"}`,
		`[1]`:                         `{"answer":"aa","data":[1],"prompt":"a?"}`,
		`null`:                        `{"answer":"aa","prompt":"a?"}`,
	} {
		g := recorded([]string{"a"}, []float64{1})
		g.Task = json.RawMessage(`{"v":1,"messages":0,"data":` + data + `}`)
		got, err := open(t, run(t, g)).groups[0].read()
		if err != nil {
			t.Fatal(err)
		}
		got.ForFunction()
		var task struct{ Data json.RawMessage }
		if err := json.Unmarshal(got.Task, &task); err != nil || string(task.Data) != want {
			t.Errorf("%s becomes %s, expected %s (%v)", data, task.Data, want, err)
		}
	}
}
