package trainer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/google/renameio/v2"

	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// MetricTokens is the metric of every trainer with the completion tokens that its weights were trained on: each batch
// once, however many epochs it is trained for. A trainer that continues from a checkpoint continues from that
// checkpoint's number.
const MetricTokens = "tokens_total"

// tokensFile, in the folder of a block, has the numbers of its checkpoints.
const tokensFile = "tokens.json"

// keptTokens are the newest checkpoints whose numbers are kept.
const keptTokens = 1000

// tokens counts what a trainer reports as tokens (tokens/trained) of each step.
type tokens struct {
	path string

	mu    sync.Mutex
	begun bool // it has counted a step
	total float64
	saved tokensSaved
}

type tokensSaved struct {
	FormatVersion int               `json:"format_version"`
	Checkpoints   map[int64]float64 `json:"checkpoints"` // tokens, by step
}

// openTokens reads the numbers of earlier attempts. What is not readable counts from 0, which is an error to report.
func openTokens(dir string) (*tokens, error) {
	t := &tokens{path: filepath.Join(dir, tokensFile)}
	data, err := regular.ReadFile(t.path, 1<<20)
	if err == nil {
		err = json.Unmarshal(data, &t.saved)
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if t.saved.Checkpoints == nil {
		t.saved = tokensSaved{FormatVersion: 1, Checkpoints: map[int64]float64{}}
	}
	if err != nil {
		return t, fmt.Errorf("read %s: %s counts from 0: %w", t.path, MetricTokens, err)
	}
	return t, nil
}

// add counts the metrics of a step, and adds the number to them. The first step of an attempt goes on from the newest
// checkpoint before it.
func (t *tokens) add(step int64, values map[string]float64) map[string]float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, trained := spec.MetricValue(values, "tokens")
	if trained && !t.begun {
		t.begun, t.total = true, t.before(step)
	}
	if !t.begun { // a batch that was left out
		return values
	}
	t.total += n
	out := make(map[string]float64, len(values)+1)
	maps.Copy(out, values)
	out[MetricTokens] = t.total
	return out
}

// before is the number of the newest checkpoint before a step; 0 when there is none.
func (t *tokens) before(step int64) float64 {
	at := int64(-1)
	for s := range t.saved.Checkpoints {
		if s < step && s > at {
			at = s
		}
	}
	return t.saved.Checkpoints[at]
}

// checkpoint keeps the number of a checkpoint.
func (t *tokens) checkpoint(step int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.begun { // a checkpoint without a step of this attempt has the number that it had
		return nil
	}
	all := t.saved.Checkpoints
	all[step] = t.total
	for _, s := range slices.Sorted(maps.Keys(all)) {
		if s > step || len(all) > keptTokens { // of steps that are trained anew, or the oldest
			delete(all, s)
		}
	}
	data, err := json.Marshal(t.saved)
	if err != nil {
		return err
	}
	return renameio.WriteFile(t.path, data, 0o600, renameio.WithTempDir(filepath.Dir(t.path)))
}

func (h *host) Metrics(step int64, values map[string]float64) {
	h.Host.Metrics(step, h.tokens.add(step, values))
}

// counted declares the metric of every trainer, where a plugin declares its own, and which output a plan knows.
func counted(d *sdk.Definition) error {
	if d.Schema.Attribute("model") != nil && d.Outputs.Attribute("model") != nil {
		d.Outputs.Attribute("model").SameAs = []string{"model"}
	}
	if d.Schema.Metrics != nil {
		d.Schema.Metrics = append(d.Schema.Metrics, spec.Metric{Name: MetricTokens, Unit: "tokens",
			Since: "from the first trained batch",
			Doc:   "completion tokens that the weights were trained on, each batch once"})
	}
	return nil
}
