package environment

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// batches is a trajectory API whose trainer takes batches of 4 groups and asks for the next one when the test says so.
type batches struct {
	mu     sync.Mutex
	waits  bool
	groups []int64 // numbers of the tasks, as posted
	taken  int     // groups
}

func (b *batches) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch r.URL.Path {
	case "/register-env":
		_, _ = w.Write([]byte(`{"status":"success","env_id":0}`))
	case "/info":
		_, _ = w.Write([]byte(`{"batch_size":8}`))
	case "/status-env":
		_, _ = fmt.Fprintf(w, `{"queue_size":%d}`, len(b.groups)-b.taken)
	case "/policy_version":
		_, _ = fmt.Fprintf(w, `{"trainer_waits":%t}`, b.waits)
	case "/scored_data":
		var g trajectory.Group
		_ = json.NewDecoder(r.Body).Decode(&g)
		b.groups = append(b.groups, int64(g.Tokens[0][0]))
		_, _ = w.Write([]byte(`{"status":"received"}`))
	default:
		_, _ = w.Write([]byte(`{"status":"success"}`))
	}
}

// numbered rolls tasks out in an order of its own. Every fifth teaches nothing, and every seventh cannot be scored.
type numbered struct {
	mu    sync.Mutex
	given int64
	seeds map[int64]int64 // of the requests, by task
}

func (n *numbered) next(context.Context) (Task, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.given++
	return Task{Prompt: "?", Data: n.given}, nil
}

func (n *numbered) roll(_, _ context.Context, task Task, p sampling, _ limits) (*rolled, error) {
	number := task.Data.(int64)
	n.mu.Lock()
	n.seeds[number] = *p.Seed
	n.mu.Unlock()
	time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond) // so that groups are not done in their order
	if number%7 == 0 {
		return nil, &unscored{text: "no score"}
	}
	out := &rolled{}
	for i := range 2 {
		s := sequence{tokens: []int{int(number)}, masks: []int{int(number)}, logprobs: []float64{-1}}
		if number%5 != 0 {
			s.score = float64(i)
		}
		out.sequences = append(out.sequences, s)
	}
	return out, nil
}

// ordered runs a deterministic environment for three batches and returns what was posted, and the seeds.
func ordered(t *testing.T, seed int64) ([]int64, map[int64]int64) {
	t.Helper()
	b := &batches{}
	server := httptest.NewServer(b)
	defer server.Close()
	api, err := trajectory.New(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	n := &numbered{seeds: map[int64]int64{}}
	s := Settings{Deterministic: true, GroupSize: 2, DropUninformative: true, Weight: 1, MaxTokens: 8}
	r := &rollouts{place: openPlace(filepath.Join(t.TempDir(), "tasks.json"), "", nil),
		rates: openRates(filepath.Join(t.TempDir(), SolveRatesFile), nil), roller: n, host: quiet{}, api: api,
		settings: s, name: "a", stats: newRolloutStats(),
		order: newOrder("a", seeded{Settings: s, seed: seed})}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.run(ctx) }()
	for batch := 1; batch <= 3; batch++ {
		b.mu.Lock()
		b.waits = true
		b.mu.Unlock()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			b.mu.Lock()
			full := len(b.groups)-b.taken >= 4
			if full { // the trainer takes the batch
				b.taken, b.waits = len(b.groups), false
			}
			b.mu.Unlock()
			if full {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("no batch %d within a minute", batch)
			}
		}
	}
	stop()
	<-ended
	return b.groups, n.seeds
}

type seeded struct {
	Settings
	seed int64
}

func (s seeded) SamplingSeed() int64 { return s.seed }
func (seeded) Repeats() bool         { return true }

// quiet is a host that shows nothing.
type quiet struct{ sdk.Host }

func (quiet) Log(string, string)                {}
func (quiet) Phase(sdk.Phase, string)           {}
func (quiet) Metrics(int64, map[string]float64) {}
func (quiet) Grace() time.Duration              { return time.Second }

// TestADeterministicEnvironmentKeepsItsOrder: groups are posted in the order of their tasks, as many as a batch needs
// while the trainer waits for it, and equal seeds give equal requests.
func TestADeterministicEnvironmentKeepsItsOrder(t *testing.T) {
	t.Parallel()
	groups, seeds := ordered(t, 7)
	if want := []int64{1, 2, 3, 4, 6, 8, 9, 11, 12, 13, 16, 17}; !reflect.DeepEqual(groups, want) {
		t.Errorf("posted %d, want %d", groups, want)
	}
	different := map[int64]bool{}
	for _, seed := range seeds {
		different[seed] = true
	}
	if len(different) != len(seeds) {
		t.Errorf("%d tasks have %d seeds", len(seeds), len(different))
	}
	if _, again := ordered(t, 7); !reflect.DeepEqual(again, seeds) {
		t.Error("equal seeds give different requests")
	}
	if _, other := ordered(t, 8); other[1] == seeds[1] {
		t.Error("another seed gives equal requests")
	}
}

// TestRolloutsOfOneGroupHaveSeedsOfTheirOwn: else all rollouts of a group would be the same.
func TestRolloutsOfOneGroupHaveSeedsOfTheirOwn(t *testing.T) {
	t.Parallel()
	base := int64(3)
	p := sampling{Seed: &base}
	seen := map[int64]bool{}
	for rollout := range int64(8) {
		one := p.seededFor(rollout)
		for _, agent := range []string{"", "white"} {
			for turn := range int64(4) {
				seen[*one.seededForAgent(agent).seededFor(turn).Seed] = true
			}
		}
	}
	if len(seen) != 8*2*4 {
		t.Errorf("%d different seeds, want %d", len(seen), 8*2*4)
	}
	if none := (sampling{}).seededFor(1); none.Seed != nil {
		t.Error("a request without deterministic got a seed")
	}
}
