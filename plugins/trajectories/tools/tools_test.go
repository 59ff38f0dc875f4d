package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/recipe-rl/recipe/internal/bounded"
	"github.com/recipe-rl/recipe/internal/samples"
	"github.com/recipe-rl/recipe/plugins/trajectories"
)

// serve starts a server, with a store in dir unless that is empty.
func serve(t *testing.T, dir string) (url string, stop func()) {
	t.Helper()
	s, err := trajectories.Open(t.Context(), trajectories.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s.Handler())
	done := false
	stop = func() {
		if !done {
			done = true
			server.CloseClientConnections()
			server.Close()
			if err := s.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(stop)
	return server.URL, stop
}

func send(t *testing.T, method, url, body string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reply.Body.Close() }()
	var b bytes.Buffer
	_, _ = b.ReadFrom(reply.Body)
	if reply.StatusCode != http.StatusOK {
		t.Fatalf("%s %s answered %d %s", method, url, reply.StatusCode, b.String())
	}
	return b.String()
}

func groupBody(mark int) string {
	return fmt.Sprintf(`{"tokens":[[1,%d,3],[1,%d,4]],"masks":[[-100,%d,3],[-100,%d,4]],
"scores":[0.25,1],"env_id":0,"policy_version":[3,4],"inference_logprobs":[[1,-0.5,-1],[1,-0.5,-2]],
"messages":[[{"role":"user","content":"what is %d?"},{"role":"assistant","content":"no idea"}],[{"role":"user","content":"what is %d?"},{"role":"assistant","content":"it is\n%d"}]]}`, mark, mark, mark, mark, mark, mark, mark)
}

func prepare(t *testing.T, url string) {
	t.Helper()
	send(t, "POST", url+"/register", `{"wandb_group":"","batch_size":4,"max_token_len":9,"checkpoint_dir":"","num_steps":5}`)
	send(t, "GET", url+"/batch", "")
	send(t, "POST", url+"/register-env", `{"max_token_length":9,"desired_name":"math","weight":1,"group_size":2}`)
}

func TestShowListsGroupsAndTheirText(t *testing.T) {
	t.Parallel()
	url, _ := serve(t, "")
	prepare(t, url)
	send(t, "POST", url+"/scored_data", groupBody(42))
	var out bytes.Buffer
	if err := Show(t.Context(), ShowOptions{Target: Target{URL: url}}, &out); err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(text, "1 math_0 2 6 ") ||
		!strings.Contains(text, "v3–4 waiting") {
		t.Errorf("the list is %s", out.String())
	}
	out.Reset()
	if err := Show(t.Context(), ShowOptions{Target: Target{URL: url}, ID: 1}, &out); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"2 sequences", "policy version [3,4]", "#1  score 1, 3 tokens, 2 trained",
		"what is 42?", "it is 42"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("the group lacks %q: %s", part, out.String())
		}
	}
	if err := Show(t.Context(), ShowOptions{Target: Target{URL: url}, ID: 7}, &out); err == nil ||
		!strings.Contains(err.Error(), "no group of this id") {
		t.Errorf("a group that is not there: %v", err)
	}
}

func TestTailShowsArrivals(t *testing.T) {
	t.Parallel()
	url, _ := serve(t, "")
	prepare(t, url)
	var out bytes.Buffer
	done := make(chan error, 1)
	go func() {
		done <- Tail(t.Context(), TailOptions{Target: Target{URL: url}, Count: 1, Env: "math_0", Width: 200}, &out)
	}()
	for running := true; running; { // the tail may begin after the first of these
		send(t, "POST", url+"/scored_data", strings.Replace(groupBody(1), `"env_id":0`, `"env_id":5`, 1))
		send(t, "POST", url+"/scored_data", groupBody(42))
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			running = false
		default:
		}
	}
	for _, part := range []string{"math_0", "2×3", "score 0.625 (0.25…1)", "v3–4", "what is 42? → it is 42"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("the line lacks %q: %s", part, out.String())
		}
	}
}

func TestExportAndReplayCarryGroupsToAnotherServer(t *testing.T) {
	t.Parallel()
	url, _ := serve(t, "")
	prepare(t, url)
	for i := range 3 {
		send(t, "POST", url+"/scored_data", groupBody(i))
	}
	var lines bytes.Buffer
	n, err := Export(t.Context(), ExportOptions{Target: Target{URL: url}}, &lines)
	if err != nil || n != 3 || strings.Count(lines.String(), "\n") != 3 {
		t.Fatalf("exported %d groups, %v: %s", n, err, lines.String())
	}
	other, _ := serve(t, "")
	send(t, "POST", other+"/register", `{"wandb_group":"","batch_size":4,"max_token_len":9,"checkpoint_dir":"","num_steps":5}`)
	var out bytes.Buffer
	if err := Replay(t.Context(), ReplayOptions{Target: Target{URL: other}, Loop: 2}, bytes.NewReader(lines.Bytes()),
		&out); err != nil {
		t.Fatal(err)
	}
	if out.String() != "6 groups replayed, of policy versions 3 to 4\n" {
		t.Errorf("said %q", out.String())
	}
	var batch struct {
		Batch []struct {
			Tokens   [][]int
			Env      *int            `json:"env_id"`
			Version  []int           `json:"policy_version"`
			Messages json.RawMessage `json:"messages"`
		}
	}
	if err := json.Unmarshal([]byte(send(t, "GET", other+"/batch", "")), &batch); err != nil {
		t.Fatal(err)
	}
	if len(batch.Batch) != 2 || batch.Batch[1].Tokens[0][1] != 1 || batch.Batch[0].Env != nil ||
		fmt.Sprint(batch.Batch[0].Version) != "[3 4]" || !strings.Contains(string(batch.Batch[0].Messages), `it is\n0`) {
		t.Errorf("the trainer got %+v", batch.Batch)
	}
	err = Replay(t.Context(), ReplayOptions{Target: Target{URL: other}}, strings.NewReader("{\"tokens\":[]}\n"), &out)
	if err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("a bad line: %v", err)
	}
}

func TestExportWritesParquetFromAStoppedStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	url, stop := serve(t, dir)
	prepare(t, url)
	send(t, "POST", url+"/scored_data", groupBody(42))
	send(t, "POST", url+"/scored_data", `{"tokens":[[7]],"masks":[[7]],"scores":[2]}`)
	if _, err := Export(t.Context(), ExportOptions{Target: Target{Dir: dir}}, &bytes.Buffer{}); err == nil ||
		!strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("reading a store that a server has open: %v", err)
	}
	stop()
	file := filepath.Join(t.TempDir(), "x.parquet")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	n, err := Export(t.Context(), ExportOptions{Target: Target{Dir: dir}, Format: "parquet"}, f)
	if err != nil || n != 2 || f.Close() != nil {
		t.Fatalf("exported %d groups, %v", n, err)
	}
	rows, err := parquet.ReadFile[Row](file)
	if err != nil || len(rows) != 3 {
		t.Fatalf("read %d rows, %v", len(rows), err)
	}
	if r := rows[1]; r.Group != 1 || r.Index != 1 || r.Env != "math_0" || r.Score != 1 || r.MinVersion != 3 ||
		r.MaxVersion != 4 || fmt.Sprint(r.Tokens, r.Masks, r.InferenceLogprobs) != "[1 42 4] [-100 42 4] [1 -0.5 -2]" {
		t.Errorf("read %+v", r)
	}
	if r := rows[2]; r.MinVersion != -1 || r.Env != "anonymous" || r.Messages != "" {
		t.Errorf("read %+v", r)
	}
	if err := Show(t.Context(), ShowOptions{Target: Target{Dir: t.TempDir()}}, &bytes.Buffer{}); err == nil ||
		!strings.Contains(err.Error(), "holds no trajectory store") {
		t.Errorf("a folder without a store: %v", err)
	}
}

func TestStats(t *testing.T) {
	t.Parallel()
	url, _ := serve(t, "")
	prepare(t, url)
	for i := range 3 {
		send(t, "POST", url+"/scored_data", groupBody(i))
	}
	send(t, "GET", url+"/batch", "")
	var out bytes.Buffer
	if err := Stats(t.Context(), StatsOptions{Target: Target{URL: url}}, &out); err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(text,
		"step 1, 1 groups waiting, policy v?") || !strings.Contains(text, "math_0 yes") ||
		!strings.Contains(text, " 1 3 2 2 0.0% -") {
		t.Errorf("the report is %s", out.String())
	}
	out.Reset()
	if err := Stats(t.Context(), StatsOptions{Target: Target{URL: url}, JSON: true}, &out); err != nil ||
		!json.Valid(out.Bytes()) {
		t.Errorf("as JSON: %s, %v", out.String(), err)
	}
}

// A record of samples has no server: its groups are counted by what became of them.
func TestStatsOfARecord(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "record")
	recorder, err := samples.NewWriter(dir, samples.Limits{Bytes: 1 << 20}, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	for id := range uint64(4) {
		recorder.Post(samples.Line{ID: id + 1, Environment: "sums_0", Sequences: 2, Versions: []int64{3, 3}}, []byte("{}"))
	}
	recorder.Train(samples.Line{ID: 1, Step: 7}, samples.Computed{})
	recorder.Drop(samples.Line{ID: 2, Reason: "stale"})
	if err := recorder.Close(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Stats(t.Context(), StatsOptions{Target: Target{Dir: dir}}, &out); err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(text,
		"step 7, 2 groups waiting, policy v3") || !strings.HasSuffix(text, "sums_0 no - - 4 1 4 25.0% -") {
		t.Errorf("the report is %s", out.String())
	}
}

// TestShowOfHostileRecords: a record may come from elsewhere, and nothing has checked its groups.
func TestShowOfHostileRecords(t *testing.T) {
	t.Parallel()
	bodies := []string{
		`{"tokens":[[1,2],[3]],"masks":[],"scores":[]}`,
		`{"tokens":[[1]],"masks":[[-100,-100,-100]],"scores":[1]}`,
		"{\"tokens\":[[1]],\"masks\":[[1]],\"scores\":[1],\"policy_version\":[1,\n\"::error::forged\"],\"overrides\":" +
			`[{"finish_reason":"x\n::error::forged","failed":"x\n::error::forged",` +
			`"metrics":{"x\n::error::forged":"x\n::error::forged"}}],"group_overrides":{"expected":"x\n::error::forged"}}`,
	}
	dir := filepath.Join(t.TempDir(), "record")
	recorder, err := samples.NewWriter(dir, samples.Limits{Bytes: 1 << 20}, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	for i, body := range bodies {
		recorder.Post(samples.Line{ID: uint64(i) + 1, Environment: "x\n::error::forged"}, []byte(body))
	}
	if err := recorder.Close(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for id := range len(bodies) + 1 { // 0 lists them
		if err := Show(t.Context(), ShowOptions{Target: Target{Dir: dir}, ID: uint64(id)}, &out); err != nil {
			t.Error(err)
		}
	}
	if text := out.String(); !strings.Contains(text, "forged") || strings.Contains(text, "\n::") {
		t.Errorf("a name makes a line of its own:\n%s", text)
	}
	var group sampleGroup
	if err := json.Unmarshal([]byte(bodies[1]), &group); err != nil || group.preview(80) == "" {
		t.Errorf("no preview: %v", err)
	}
}

func TestATargetIsNeeded(t *testing.T) {
	t.Parallel()
	for _, target := range []Target{{}, {URL: "http://x", Dir: "y"}} {
		if err := Stats(t.Context(), StatsOptions{Target: target}, &bytes.Buffer{}); err == nil {
			t.Errorf("accepted %+v", target)
		}
	}
}

type endless struct{ *strings.Reader }

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// A server that sends without end, and a recording that is one line without end, take no more than the limit.
func TestAnswersAndLinesHaveALimit(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, err := w.Write([]byte(`{"groups":[`))
		for blank := []byte(strings.Repeat(" ", 1<<10)); err == nil; {
			_, err = w.Write(blank)
		}
	}))
	defer server.Close()
	target := Target{URL: server.URL, most: 1 << 20}
	for name, run := range map[string]func() error{
		"show":  func() error { return Show(t.Context(), ShowOptions{Target: target}, &bytes.Buffer{}) },
		"group": func() error { return Show(t.Context(), ShowOptions{Target: target, ID: 1}, &bytes.Buffer{}) },
		"stats": func() error { return Stats(t.Context(), StatsOptions{Target: target}, &bytes.Buffer{}) },
		"tail":  func() error { return Tail(t.Context(), TailOptions{Target: target}, &bytes.Buffer{}) },
		"export": func() error {
			_, err := Export(t.Context(), ExportOptions{Target: target}, &bytes.Buffer{})
			return err
		},
		"replay": func() error {
			return Replay(t.Context(), ReplayOptions{Target: target}, endless{strings.NewReader("")}, &bytes.Buffer{})
		},
	} {
		if err := run(); !errors.Is(err, bounded.ErrTooLarge) {
			t.Errorf("%s: %v, expected that it is too large", name, err)
		}
	}
}

// Groups are recorded in the order in which their bodies are ready. Each is exported once, by rising id.
func TestARecordIsExportedOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w, err := samples.NewWriter(dir, samples.Limits{Bytes: 1 << 20}, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []uint64{1, 4, 2, 5, 3} {
		w.Post(samples.Line{ID: id, Environment: "e", Sequences: 1, Tokens: 1}, fmt.Appendf(nil, `{"n":%d}`, id))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	n, err := Export(t.Context(), ExportOptions{Target: Target{Dir: dir}}, &out)
	want := `{"n":1}{"n":2}{"n":3}{"n":4}{"n":5}`
	if err != nil || n != 5 || strings.Join(strings.Fields(out.String()), "") != want {
		t.Errorf("%d groups, %v:\n%s", n, err, out.String())
	}
}

// A record of samples, of an evaluation for one, is read like a store.
func TestShowReadsARecordOfSamples(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), samples.EvaluationFolder("1.math"))
	w, err := samples.NewWriter(dir, samples.Limits{Bytes: 1 << 20}, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	w.Post(samples.Line{ID: 8, Environment: "math (held out)", Sequences: 2, Tokens: 6, Versions: []int64{3, 3}},
		[]byte(`{"tokens":[[1,2,3],[1,2,4]],"masks":[[-100,2,3],[-100,2,4]],"scores":[1,0],"policy_version":3,
"group_overrides":{"expected":"43"},"overrides":[{"metrics":{"reward/exact":1},"finish_reason":"stop"},
{"failed":"the judge is away"}],"messages":[[{"role":"user","content":"what?"},{"role":"assistant","content":"43"}],
[{"role":"user","content":"what?"},{"role":"assistant","content":"44"}]]}`))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[uint64][]string{
		0: {"8", "math (held out)", "v3", "evaluation"},
		8: {"expected:     43", "completion: 43", "reward/exact 1, finish_reason stop", "score none",
			"failed: the judge is away"},
	} {
		var out bytes.Buffer
		if err := Show(t.Context(), ShowOptions{Target: Target{Dir: dir}, ID: id}, &out); err != nil {
			t.Fatal(err)
		}
		for _, text := range want {
			if !strings.Contains(out.String(), text) {
				t.Errorf("group %d: no %q in\n%s", id, text, out.String())
			}
		}
	}
	if err := Show(t.Context(), ShowOptions{Target: Target{Dir: dir}, ID: 9}, &bytes.Buffer{}); err == nil {
		t.Error("a group that is not in the record was shown")
	}
}
