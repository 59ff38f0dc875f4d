package server

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/recipe-rl/recipe/plugins/tiny/lm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testAlphabet = "0123456789+=abcde "

func testParams(t testing.TB, seed uint64) *lm.Params {
	t.Helper()
	p, err := lm.NewParams(lm.Config{Vocabulary: 21, Width: 16, Layers: 2, Heads: 2, Hidden: 32, Context: 24}, seed)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	head := p.Flat()[len(p.Flat())-16*21:]
	for i := range head { // fresh models are nearly uniform; a test needs larger differences
		head[i] = float32(rng.NormFloat64() * 0.4)
	}
	return p
}

func testEngine(t testing.TB, o Options) *Engine {
	t.Helper()
	e, err := New(&lm.Checkpoint{Params: testParams(t, 1), Alphabet: testAlphabet}, 1, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func plain(prompt ...int32) Request {
	return Request{Prompt: prompt, N: 1, MaxTokens: 12, Sampling: lm.Sampling{Temperature: 1, TopP: 1}}
}

func tokensOf(c Completion) string { return slicesString(ids(c.Tokens)) }

func slicesString(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteRune(rune('A' + id))
	}
	return b.String()
}

// A trainer would compute the same log-probabilities as those that it gets.
func TestLogProbsEqualTheFullForwardPass(t *testing.T) {
	t.Parallel()
	e := testEngine(t, Options{MaxBatch: 7})
	r := plain(4, 5, 6)
	r.N = 20
	results, err := e.Generate(testContext(t), r)
	if err != nil {
		t.Fatal(err)
	}
	var a lm.Activations
	for _, c := range results {
		want := e.Policy().Params.LogProbs(&a, append(slices.Clone(r.Prompt), ids(c.Tokens)...))
		for i, tok := range c.Tokens {
			if tok.LogProb != want[3+i] {
				t.Fatalf("token %d: sampled with log-probability %v, full forward pass says %v", i, tok.LogProb, want[3+i])
			}
		}
	}
}

func TestGreedyIsDeterministicAndTheArgmax(t *testing.T) {
	t.Parallel()
	e := testEngine(t, Options{})
	r := plain(4, 5)
	r.Sampling.Temperature, r.N, r.Alternatives = 0, 3, 4
	first, err := e.Generate(testContext(t), r)
	if err != nil {
		t.Fatal(err)
	}
	again, err := e.Generate(testContext(t), r)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range append(first, again...) {
		if tokensOf(c) != tokensOf(first[0]) {
			t.Error("temperature 0 gave different completions")
		}
		for _, tok := range c.Tokens {
			if len(tok.Alternatives) != 4 || tok.Alternatives[0] != (Alternative{tok.ID, tok.LogProb}) ||
				tok.Alternatives[1].LogProb > tok.LogProb {
				t.Fatalf("greedy token %+v is not its most likely alternative", tok)
			}
		}
	}
}

// A seeded request gives the same completions however busy the engine is.
func TestSeedDoesNotDependOnTheBatch(t *testing.T) {
	t.Parallel()
	seed := uint64(42)
	r := plain(4, 5, 6)
	r.N, r.Seed = 8, &seed
	alone := testEngine(t, Options{Shards: 1})
	want, err := alone.Generate(testContext(t), r)
	if err != nil {
		t.Fatal(err)
	}
	busy := testEngine(t, Options{MaxBatch: 40, Shards: 4})
	ctx, stop := context.WithCancel(testContext(t))
	var others sync.WaitGroup
	for i := range 6 {
		others.Go(func() {
			noise := plain(int32(3+i), 9)
			noise.N = 10
			for ctx.Err() == nil {
				_, _ = busy.Generate(ctx, noise) // ends with ctx
			}
		})
	}
	for range 20 {
		got, err := busy.Generate(testContext(t), r)
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if tokensOf(got[i]) != tokensOf(want[i]) {
				t.Fatalf("completion %d is %s in company, %s alone", i, tokensOf(got[i]), tokensOf(want[i]))
			}
		}
	}
	stop()
	others.Wait()
	distinct := map[string]bool{}
	for _, c := range want {
		distinct[tokensOf(c)] = true
	}
	if len(distinct) < 3 {
		t.Errorf("8 completions of one request are only %d different ones", len(distinct))
	}
}

func TestRequestsWithoutASeedDiffer(t *testing.T) {
	t.Parallel()
	e := testEngine(t, Options{Seed: 5})
	distinct := map[string]bool{}
	for range 8 {
		got, err := e.Generate(testContext(t), plain(4, 5))
		if err != nil {
			t.Fatal(err)
		}
		distinct[tokensOf(got[0])] = true
	}
	if len(distinct) < 3 {
		t.Errorf("8 requests gave only %d different completions", len(distinct))
	}
}

// Weights change between two steps; tokens drawn afterwards have the new weights' log-probability given the whole
// sequence, and the completion reports both versions.
func TestSwapInTheMiddleOfASequence(t *testing.T) {
	t.Parallel()
	e := testEngine(t, Options{})
	before, after := e.Policy().Params, testParams(t, 2)
	r := plain(4, 5)
	r.N, r.MaxTokens = 6, 20
	drawn := 0
	r.Emit = func(Progress) { // runs between two steps, in the goroutine that decodes
		if drawn++; drawn == 20 {
			if err := e.Swap(after, 2); err != nil {
				t.Error(err)
			}
		}
	}
	results, err := e.Generate(testContext(t), r)
	if err != nil {
		t.Fatal(err)
	}
	mixed := 0
	for _, c := range results {
		var a lm.Activations
		sequence := append(slices.Clone(r.Prompt), ids(c.Tokens)...)
		old, fresh := before.LogProbs(&a, sequence), after.LogProbs(&a, sequence)
		swapped := false
		for i, tok := range c.Tokens {
			swapped = swapped || tok.LogProb != old[2+i]
			if swapped && tok.LogProb != fresh[2+i] {
				t.Fatalf("token %d has log-probability %v: neither the old policy's %v nor the new one's %v", i, tok.LogProb,
					old[2+i], fresh[2+i])
			}
		}
		if swapped {
			mixed++
		}
		if c.First != 1 || (c.Last == 2) != swapped {
			t.Errorf("versions %d to %d for a completion that changed weights: %v", c.First, c.Last, swapped)
		}
	}
	if mixed == 0 {
		t.Error("the swap reached no sequence; the test proves nothing")
	}
	if got, err := e.Generate(testContext(t), plain(4)); err != nil || got[0].First != 2 {
		t.Errorf("after the swap: %+v, %v", got, err)
	}
}

func TestSwapRefusesWeightsThatCannotBeServed(t *testing.T) {
	t.Parallel()
	e := testEngine(t, Options{})
	other, err := lm.NewParams(lm.Config{Vocabulary: 21, Width: 8, Layers: 1, Heads: 2, Hidden: 8, Context: 24}, 1)
	if err != nil {
		t.Fatal(err)
	}
	broken := testParams(t, 1)
	broken.Flat()[7] = float32(math.NaN())
	for want, p := range map[string]*lm.Params{"shape": other, "NaN": broken} {
		if err := e.Swap(p, 9); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error about %q, got %v", want, err)
		}
	}
	if e.Policy().Version != 1 {
		t.Error("refused weights changed the version")
	}
}

// Completions that are equal so far share the model's work and diverge when they draw different tokens.
func TestEqualCompletionsAreComputedOnce(t *testing.T) {
	t.Parallel()
	e := testEngine(t, Options{})
	r := plain(4, 5)
	r.N, r.Sampling.Temperature = 64, 0
	l := newLoop(e)
	j := e.newJob(testContext(t), r)
	l.waiting = j.sequences
	l.admit()
	l.step()
	if readers, _ := l.readers(); len(readers) != 1 {
		t.Errorf("64 equal completions take %d places in the batch", len(readers))
	}
	r.Sampling.Temperature = 1
	l = newLoop(e)
	j = e.newJob(testContext(t), r)
	l.waiting = j.sequences
	l.admit()
	l.step()
	distinct := map[int32]bool{}
	for _, s := range l.active {
		distinct[s.sampled[0]] = true
	}
	if readers, _ := l.readers(); len(readers) != len(distinct) || len(distinct) < 2 {
		t.Errorf("%d different completions take %d places in the batch", len(distinct), len(readers))
	}
}

func TestStopTexts(t *testing.T) {
	t.Parallel()
	e := testEngine(t, Options{})
	seed := uint64(3)
	r := plain(4, 5)
	r.N, r.MaxTokens, r.Seed = 40, 20, &seed
	free, err := e.Generate(testContext(t), r)
	if err != nil {
		t.Fatal(err)
	}
	r.Stop = []string{"7", "ab", "3+"}
	stopped, err := e.Generate(testContext(t), r)
	if err != nil {
		t.Fatal(err)
	}
	hits := 0
	for i, c := range stopped {
		stop, at := findStop(free[i].Text, r.Stop)
		if c.Text != free[i].Text[:at] || c.Stop != stop || (stop != "" && c.Finish != FinishStop) {
			t.Errorf("%q was stopped as %q by %q", free[i].Text, c.Text, c.Stop)
		}
		if stop != "" {
			hits++
			if text := e.Tokenizer().Decode(ids(c.Tokens)); !strings.HasSuffix(text, stop) {
				t.Errorf("tokens %q go on after the stop text %q", text, stop)
			}
		}
	}
	if hits == 0 || hits == len(stopped) {
		t.Errorf("%d of %d completions met a stop text; the test proves nothing", hits, len(stopped))
	}
}

func TestCertainHoldsBackABegunStop(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text  string
		stops []string
		want  int
	}{
		{"abc", nil, 3}, {"abc", []string{"x"}, 3}, {"abc", []string{"cd"}, 2}, {"abc", []string{"bcd", "cx"}, 1},
		{"aaa", []string{"aab"}, 1}, {"", []string{"ab"}, 0}, {"a", []string{"abcdef"}, 0},
	} {
		if got := certain(test.text, test.stops); got != test.want {
			t.Errorf("certain(%q, %q) = %d, want %d", test.text, test.stops, got, test.want)
		}
	}
}

func TestCanceledRequestsLeaveTheBatch(t *testing.T) {
	t.Parallel()
	e := testEngine(t, Options{MaxBatch: 4})
	ctx, cancel := context.WithCancel(testContext(t))
	r := plain(4)
	r.N, r.MaxTokens = 50, 20
	var once sync.Once
	r.Emit = func(Progress) { once.Do(cancel) }
	if _, err := e.Generate(ctx, r); !errors.Is(err, context.Canceled) {
		t.Fatalf("want the context's error, got %v", err)
	}
	if _, err := e.Generate(testContext(t), plain(5)); err != nil { // returns only after the loop has seen it
		t.Fatal(err)
	}
	s := e.Stats()
	for ctx := testContext(t); s.Active+s.Waiting != 0 && ctx.Err() == nil; s = e.Stats() {
		time.Sleep(time.Millisecond) // an answer is given before the loop counts what is left
	}
	if s.Active != 0 || s.Waiting != 0 || s.SampledTokens > 100 {
		t.Errorf("after cancellation: %+v", s)
	}
}

func TestBusyAndClosed(t *testing.T) {
	t.Parallel()
	e := testEngine(t, Options{MaxBatch: 2, MaxWaiting: 3})
	r := plain(4)
	r.N = 6
	if _, err := e.Generate(testContext(t), r); !errors.Is(err, ErrBusy) {
		t.Errorf("more sequences than may wait: %v", err)
	}
	r.N = 5
	if got, err := e.Generate(testContext(t), r); err != nil || len(got) != 5 {
		t.Errorf("as many sequences as may wait: %d, %v", len(got), err)
	}
	entered, release := make(chan struct{}), make(chan struct{})
	blocked := plain(4)
	var once sync.Once
	blocked.Emit = func(Progress) { once.Do(func() { close(entered); <-release }) }
	blocked.MaxTokens = 23
	blocked.N = 2
	failed := make(chan error, 1)
	go func() {
		_, err := e.Generate(context.Background(), blocked)
		failed <- err
	}()
	<-entered
	closed := make(chan struct{})
	go func() { e.Close(); close(closed) }()
	for !e.closing.Load() {
		time.Sleep(time.Millisecond)
	}
	close(release)
	<-closed
	if err := <-failed; !errors.Is(err, ErrClosed) {
		t.Errorf("running request: %v", err)
	}
	if _, err := e.Generate(context.Background(), plain(4)); !errors.Is(err, ErrClosed) {
		t.Errorf("later request: %v", err)
	}
	e.Close() // twice is allowed
}

func TestGenerateChecksRequests(t *testing.T) {
	t.Parallel()
	e := testEngine(t, Options{})
	for want, spoil := range map[string]func(*Request){
		"at least one token": func(r *Request) { r.Prompt = nil },
		"position 0":         func(r *Request) { r.Prompt = []int32{99} },
		"n:":                 func(r *Request) { r.N = 0 },
		"max_tokens":         func(r *Request) { r.MaxTokens = 24 },
		"top_p":              func(r *Request) { r.Sampling.TopP = 0 },
	} {
		r := plain(4)
		spoil(&r)
		if _, err := e.Generate(testContext(t), r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error about %q, got %v", want, err)
		}
	}
}

// A prompt is computed once for all its completions.
func TestPromptIsReadOnce(t *testing.T) {
	t.Parallel()
	e := testEngine(t, Options{})
	r := plain(4, 5, 6, 7)
	r.N = 16
	if _, err := e.Generate(testContext(t), r); err != nil {
		t.Fatal(err)
	}
	if s := e.Stats(); s.PromptTokens != 4 || s.FinishedSamples != 16 {
		t.Errorf("stats %+v, want 4 prompt tokens and 16 completions", s)
	}
}
