package environment

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"sync"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Curriculum draws tasks of the right difficulty. A group whose answers are all right or all wrong has nothing to learn
// from, and costs as much as any other.
type Curriculum struct {
	Target  []float64 `recipe:"target" default:"[0.2, 0.8]" doc:"Lowest and highest solve rate of tasks that are always rolled out"`
	Explore float64   `recipe:"explore" default:"0.1" min:"0.01" max:"1" doc:"How likely a task outside of target is rolled out all the same when its turn comes, so that none is left out for ever"`
}

// problems are mistakes that the schema cannot express.
func (c *Curriculum) problems(deterministic bool) []spec.Problem {
	at := cty.GetAttrPath("curriculum")
	var out []spec.Problem
	if t := c.Target; len(t) != 2 || !(0 <= t[0] && t[0] < t[1] && t[1] <= 1) {
		out = append(out, spec.Problem{Path: at.GetAttr("target"), Summary: "Not a range of solve rates",
			Detail: fmt.Sprintf("target is %v; expected two numbers between 0 and 1, the lower one first, such as [0.2, 0.8].",
				t)})
	}
	if deterministic {
		out = append(out, spec.Problem{Path: at, Summary: "deterministic draws tasks in order",
			Detail: "With a curriculum the next task depends on when the groups before it were scored, and deterministic = " +
				"true leaves nothing to time. Leave one of them out."})
	}
	return out
}

// SolveRatesFile is the file of an environment's block that holds its SolveRates.
const SolveRatesFile = "solve_rates.json"

// MaxSolveRates is the largest such file that is read: 65,536 tasks, each with 500 bytes of a prompt.
const MaxSolveRates = 64 << 20

// SolveRatesVersion is the version of SolveRates that this package writes.
const SolveRatesVersion = 1

// SolveRates are how well the policy has done the tasks of an environment, by the digest of their prompt.
type SolveRates struct {
	Version int                   `json:"version"`
	Low     float64               `json:"low"`  // the lowest score that came, and at most 0
	High    float64               `json:"high"` // the highest score that came, and at least 1
	Tasks   map[string]*SolveRate `json:"tasks"`
}

// SolveRate is how well the policy has done one task.
type SolveRate struct {
	Prompt string  `json:"prompt"` // its first 500 bytes
	Score  float64 `json:"score"`  // mean of its groups, of which each newer one counts as much as all before it
	Groups int64   `json:"groups"`
	Step   int64   `json:"step"` // of the trainer, when the newest group was made
}

// Rate is a task's score as a part of the range of all scores: 0 for the lowest, 1 for the highest. A rate within a
// hundredth of these is one of them: the mean of a task that failed at first never quite reaches 1.
func (s *SolveRates) Rate(t *SolveRate) float64 {
	const nearly = 0.01
	switch rate := (t.Score - s.Low) / (s.High - s.Low); {
	case rate < nearly:
		return 0
	case rate > 1-nearly:
		return 1
	default:
		return rate
	}
}

// check finds what cannot be calculated with, in a file that somebody may have edited.
func (s *SolveRates) check() error {
	switch {
	case s.Version != SolveRatesVersion:
		return fmt.Errorf("its version is %d; expected %d", s.Version, SolveRatesVersion)
	case s.Tasks == nil, !(s.Low <= 0), !(s.High >= 1):
		return errors.New("low, high or tasks is missing")
	}
	for name, t := range s.Tasks {
		if t == nil {
			return fmt.Errorf("the task %q is null", name)
		}
	}
	return nil
}

const (
	mostRates = 1 << 16 // tasks whose solve rate is kept
	// The newest group of a task counts half: the policy that answered the groups before is an older one.
	rateShare  = 0.5
	savedEvery = 10 * time.Second
	// Writing takes at most this part of the time.
	savedShare = 0.01
)

// rates are the solve rates of an environment's tasks, kept across the lives of its block.
type rates struct {
	path string
	mu   sync.Mutex
	kept *SolveRates

	changed bool
	written time.Time
	pause   time.Duration
}

// ReadSolveRates reads the content of a SolveRatesFile.
func ReadSolveRates(data []byte) (*SolveRates, error) {
	s := &SolveRates{}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, err
	}
	return s, s.check()
}

// openRates reads what earlier lives of the block have kept. A file that cannot be read is forgotten.
func openRates(path string, log func(level, message string)) *rates {
	r := &rates{path: path, pause: savedEvery}
	data, err := regular.ReadFile(path, MaxSolveRates)
	if err == nil {
		r.kept, err = ReadSolveRates(data)
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			log("warn", fmt.Sprintf("the solve rates of the tasks begin anew: %s: %v", path, err))
		}
		r.kept = &SolveRates{Version: SolveRatesVersion, High: 1, Tasks: map[string]*SolveRate{}}
	}
	return r
}

// note keeps the score of a task's group. Without a text a task has no name, and nothing is kept.
func (r *rates) note(task Task, made *rolled, step int64) {
	if task.text() == "" {
		return
	}
	var sum, n float64
	low, high := math.Inf(1), math.Inf(-1)
	for i := range made.sequences {
		s := &made.sequences[i]
		if s.failed != nil || s.part {
			continue
		}
		sum, n, low, high = sum+s.score, n+1, min(low, s.score), max(high, s.score)
	}
	if n == 0 {
		return
	}
	mean := sum / n
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept.Low, r.kept.High = min(r.kept.Low, low), max(r.kept.High, high)
	name := task.digest()
	t := r.kept.Tasks[name]
	switch {
	case t != nil:
		t.Score += rateShare * (mean - t.Score)
	case len(r.kept.Tasks) >= mostRates:
		return
	default:
		t = &SolveRate{Prompt: brief([]byte(task.text())), Score: mean}
		r.kept.Tasks[name] = t
	}
	t.Groups++
	t.Step, r.changed = step, true
}

// wants reports whether a task is rolled out. chance is a number from 0 to 1.
func (r *rates) wants(c *Curriculum, task Task, chance float64) bool {
	if c == nil {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.kept.Tasks[task.digest()]
	if t == nil {
		return true
	}
	rate := r.kept.Rate(t)
	return c.Target[0] <= rate && rate <= c.Target[1] || chance < c.Explore
}

// most is how many tasks in a row may be passed over: the tasks that are known, each once.
func (r *rates) most() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.kept.Tasks)
}

// metrics counts the tasks by their solve rate; nil where no task has come twice, as where tasks are made up.
func (r *rates) metrics(c *Curriculum) map[string]float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	target := []float64{0.2, 0.8}
	if c != nil {
		target = c.Target
	}
	out := map[string]float64{"tasks/unsolved": 0, "tasks/hard": 0, "tasks/target": 0, "tasks/easy": 0,
		"tasks/solved": 0}
	again := false
	for _, t := range r.kept.Tasks {
		again = again || t.Groups > 1
		switch rate := r.kept.Rate(t); {
		case rate == 0:
			out["tasks/unsolved"]++
		case rate < target[0]:
			out["tasks/hard"]++
		case rate <= target[1]:
			out["tasks/target"]++
		case rate < 1:
			out["tasks/easy"]++
		default:
			out["tasks/solved"]++
		}
	}
	if !again {
		return nil
	}
	return out
}

// save writes the rates, if they have changed, now and then or now.
func (r *rates) save(now bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.changed || !now && time.Since(r.written) < r.pause {
		return nil
	}
	began := time.Now()
	err := writeWhole(r.path, r.kept)
	r.written = time.Now()
	r.pause = max(savedEvery, time.Duration(float64(r.written.Sub(began))/savedShare))
	if err != nil {
		return fmt.Errorf("keep the solve rates of the tasks: %w", err)
	}
	r.changed = false
	return nil
}
