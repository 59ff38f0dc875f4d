package trajectories

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/recipe-rl/recipe/internal/samples"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// The shape of a step of recipes/gsm8k.hcl: questions, answers to each, and tokens of an answer and of its question.
const (
	benchGroups, benchSize, benchAnswer, benchQuestion = 16, 8, 1024, 128

	benchSteps = 8 // of one measurement
)

// BenchmarkRecording measures the processor time that the record of samples takes in a step. In the trajectory API: its
// whole process by turns with the record, as recorded-ms/step, and without, as unrecorded-ms/step, and the difference,
// record-ms/step. In a trainer in Python: from the step's values to the server's answer.
func BenchmarkRecording(b *testing.B) {
	groups, trained := benchBodies()
	perStep := func(b *testing.B, d time.Duration) float64 {
		return float64(d) / float64(b.N*benchSteps) / float64(time.Millisecond)
	}
	b.Run("api", func(b *testing.B) {
		var with, without time.Duration
		for b.Loop() {
			without += benchRun(b, groups, nil)
			with += benchRun(b, groups, trained)
		}
		b.ReportMetric(perStep(b, with), "recorded-ms/step")
		b.ReportMetric(perStep(b, without), "unrecorded-ms/step")
		b.ReportMetric(perStep(b, with-without), "record-ms/step")
	})
	b.Run("trainer", func(b *testing.B) {
		python := benchPython(b)
		var spent float64
		for b.Loop() {
			spent += benchTrainer(b, python, groups)
		}
		b.ReportMetric(spent/float64(b.N), "record-ms/step")
	})
}

// benchBodies are the groups of a step as environments post them, and what a trainer posts of them: float32 values
// without a pattern, as those of a model.
func benchBodies() (groups [][]byte, trained []byte) {
	rng := rand.New(rand.NewPCG(1, 2))
	var t trajectory.Trained
	for i := range benchGroups {
		g := &trajectory.Group{}
		var computed, advantages []float64
		for range benchSize {
			tokens, masks, logprobs, advantage := []int{}, []int{}, []float64{}, rng.NormFloat64()
			for k := range benchQuestion + benchAnswer {
				// Tokens are as unequal in frequency as words are.
				token, mask, lp := int(50_000*rng.Float64()*rng.Float64()*rng.Float64()), -100, 1.0
				if k >= benchQuestion {
					mask, lp = token, float64(float32(-rng.ExpFloat64()))
					computed = append(computed, lp+rng.NormFloat64()/100)
					advantages = append(advantages, advantage)
				}
				tokens, masks, logprobs = append(tokens, token), append(masks, mask), append(logprobs, lp)
			}
			g.Tokens, g.Masks = append(g.Tokens, tokens), append(g.Masks, masks)
			g.Scores, g.InferenceLogprobs = append(g.Scores, rng.Float64()), append(g.InferenceLogprobs, logprobs)
		}
		body, _ := json.Marshal(g)
		groups = append(groups, body)
		t.Groups = append(t.Groups, trajectory.TrainedGroup{Index: i, Logprobs: trajectory.Floats(computed),
			Advantages: trajectory.Floats(advantages)})
	}
	trained, _ = json.Marshal(t)
	return groups, trained
}

// benchServer is a trajectory API with a trainer, behind HTTP and with its store on disk.
type benchServer struct {
	b *testing.B
	*Server
	http *httptest.Server
}

func newBenchServer(b *testing.B, record bool) *benchServer {
	b.Helper()
	dir := b.TempDir()
	cfg := Config{Dir: filepath.Join(dir, "store")}
	if record {
		cfg.Samples, cfg.SamplesLimits = filepath.Join(dir, "samples"), samples.Limits{Bytes: 1 << 30}
		cfg.SamplesLost = func(err error) { b.Error(err) }
	}
	s, err := Open(b.Context(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	server := &benchServer{b, s, httptest.NewServer(s.Handler())}
	server.call("POST", "/register", fmt.Appendf(nil, `{"wandb_group":"g","batch_size":%d,"max_token_len":2048,`+
		`"checkpoint_dir":"","num_steps":1000}`, benchGroups*benchSize))
	return server
}

func (s *benchServer) call(method, path string, body []byte) []byte {
	s.b.Helper()
	r, _ := http.NewRequestWithContext(s.b.Context(), method, s.http.URL+path, bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	answer, err := s.http.Client().Do(r)
	if err != nil {
		s.b.Fatal(err)
	}
	text, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	if err != nil || answer.StatusCode != http.StatusOK {
		s.b.Fatalf("%s %s answered %d %s, %v", method, path, answer.StatusCode, text, err)
	}
	return text
}

// close returns when everything is on disk.
func (s *benchServer) close() {
	s.b.Helper()
	s.http.Close()
	if err := s.Close(s.b.Context()); err != nil {
		s.b.Fatal(err)
	}
}

// benchRun is the processor time of some steps of this process, from the start of a server until all is on disk.
// Without trained nothing is recorded.
func benchRun(b *testing.B, groups [][]byte, trained []byte) time.Duration {
	b.Helper()
	began := benchCPU(b)
	s := newBenchServer(b, trained != nil)
	for range benchSteps {
		for _, g := range groups {
			s.call("POST", "/scored_data", g)
		}
		id := gjson.GetBytes(s.call("GET", "/batch?lease=60s", nil), "id").String()
		s.call("POST", "/batch/"+id+"/ack", []byte("{}"))
		if trained != nil {
			s.call("POST", "/batch/"+id+"/trained", trained)
		}
	}
	s.close()
	return benchCPU(b) - began
}

// benchPython is an interpreter with torch.
func benchPython(b *testing.B) string {
	b.Helper()
	path, _ := filepath.Abs("../../.cache/venv-test/bin/python")
	if _, err := os.Stat(path); err != nil {
		b.Skip("no .cache/venv-test; scripts/test-python.sh --prepare makes it")
	}
	return path
}

// benchTrainer is what a trainer in Python spends on the record of a step, in milliseconds of processor time.
func benchTrainer(b *testing.B, python string, groups [][]byte) float64 {
	b.Helper()
	s := newBenchServer(b, true)
	defer s.close()
	s.call("GET", "/batch", nil) // a trainer waits
	for range benchSteps {
		for _, g := range groups {
			s.call("POST", "/scored_data", g)
		}
	}
	cmd := exec.CommandContext(b.Context(), python, "bench/trained.py", s.http.URL, fmt.Sprint(benchSteps))
	cmd.Env = append(os.Environ(), "PYTHONPATH=../../sdk/python/src")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		b.Fatal(err)
	}
	ms, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	if err != nil {
		b.Fatal(err)
	}
	return ms
}

func benchCPU(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
