package ui

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/engine/printable"
	"github.com/recipe-rl/recipe/engine/transcript"
	"github.com/recipe-rl/recipe/internal/samples"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// closeSamples releases the readers.
func (r *run) closeSamples() {
	r.samplesMu.Lock()
	defer r.samplesMu.Unlock()
	for _, reader := range r.records {
		reader.Close()
	}
}

// record is the record of samples of one trajectories block, read to its end.
func (r *run) record(block string) (*samples.Reader, error) {
	r.samplesMu.Lock()
	defer r.samplesMu.Unlock()
	reader := r.records[block]
	if reader == nil {
		var err error
		if reader, err = samples.NewReaderIn(string(r.dir), filepath.Join("samples", block)); err != nil {
			return nil, err
		}
		r.records[block] = reader
	}
	_, err := reader.Refresh()
	return reader, err
}

func (r *run) samplesDir() string { return filepath.Join(string(r.dir), "samples") }

// recordedBlocks are the records, by the names of their folders: those of trajectories blocks, then those of
// evaluations, the newest first.
func (r *run) recordedBlocks() (out []string) {
	entries, _ := os.ReadDir(r.samplesDir()) // none yet
	var evaluations []string
	for _, e := range entries {
		switch {
		case !e.IsDir():
		case samples.OfEvaluation(e.Name()):
			evaluations = append(evaluations, e.Name())
		default:
			out = append(out, e.Name())
		}
	}
	slices.Reverse(evaluations)
	return append(out, evaluations...)
}

func (r *run) groupsKnown() (n int) {
	for _, block := range r.recordedBlocks() {
		if reader, err := r.record(block); err == nil {
			list, _ := reader.Groups()
			n += len(list)
		}
	}
	return n
}

// groupList is a part of the list of groups.
type groupList struct {
	Groups       []groupRow `json:"groups"`
	Total        int        `json:"total"`       // groups in the record
	Evaluations  int        `json:"evaluations"` // those of them that evaluations have made
	Lost         int64      `json:"lost"`
	Next         int        `json:"next"` // groups to skip for more; 0: there are none
	Environments []string   `json:"environments"`
}

// wholeGroup is a group with its completions.
type wholeGroup struct {
	groupRow
	Messages    []transcript.Message `json:"messages"` // that all completions share
	Completions []completionRow      `json:"completions"`
	Computed    bool                 `json:"computed"`   // the trainer reported log-probabilities or advantages
	Generation  map[string]any       `json:"generation"` // sampling parameters
	Expected    string               `json:"expected"`   // the right answer; empty: not known
}

// groupRow is a group in the list.
type groupRow struct {
	Block       string    `json:"block"`
	ID          uint64    `json:"id"`
	Time        time.Time `json:"time"`
	Environment string    `json:"environment"`
	Sequences   int       `json:"sequences"`
	Tokens      int       `json:"tokens"`
	Longest     int       `json:"longest"`
	Mean        *number   `json:"mean"`
	Spread      *number   `json:"spread"`
	Scores      []float32 `json:"scores"`
	Versions    []int64   `json:"versions,omitempty"`
	Step        int64     `json:"step,omitempty"`
	Staleness   *int64    `json:"staleness,omitempty"`
	Dropped     string    `json:"dropped,omitempty"`
	Evaluation  bool      `json:"evaluation,omitempty"` // of held-out tasks, never trained
	Prompt      string    `json:"prompt"`
	Best        string    `json:"best"` // the completion with the best score
}

func row(block string, g *samples.Group) groupRow {
	mean, spread := number(g.Mean), number(g.Spread)
	out := groupRow{Block: block, ID: g.ID, Time: g.Time, Environment: environmentOf(g),
		Sequences: g.Sequences, Tokens: g.Tokens, Longest: g.Longest, Mean: &mean, Spread: &spread, Scores: g.Scores,
		Versions: g.Versions, Evaluation: samples.OfEvaluation(block)}
	if g.Used != nil {
		out.Step = g.Used.Step
		if g.Used.Version != nil && len(g.Versions) > 0 {
			old := *g.Used.Version - g.Versions[0]
			out.Staleness = &old
		}
	}
	if g.Dropped != nil {
		out.Dropped = printable.Text(g.Dropped.Reason)
	}
	return out
}

// environmentOf is the name of a group's environment, which the environment chose.
func environmentOf(g *samples.Group) string {
	return printable.Text(printable.Limit(g.Environment, 200))
}

// filter is which groups the list shows.
type filter struct {
	environment, text, state  string
	least, most               float64 // mean score
	firstStep, lastStep       float64
	firstVersion, lastVersion float64
}

func filterOf(q *query) filter {
	inf := math.Inf(1)
	return filter{environment: q.text("environment"), text: strings.ToLower(q.text("text")), state: q.text("state"),
		least: q.number("least", -inf, -inf, inf), most: q.number("most", inf, -inf, inf),
		firstStep: q.number("first_step", -inf, -inf, inf), lastStep: q.number("last_step", inf, -inf, inf),
		firstVersion: q.number("first_version", -inf, -inf, inf), lastVersion: q.number("last_version", inf, -inf, inf)}
}

// takes decides by what the index of a block's record says.
func (f *filter) takes(block string, g *samples.Group) bool {
	if f.environment != "" && environmentOf(g) != f.environment || g.Mean < f.least || g.Mean > f.most {
		return false
	}
	step, version := math.NaN(), math.NaN()
	if g.Used != nil {
		step = float64(g.Used.Step)
	}
	if len(g.Versions) > 0 {
		version = float64(g.Versions[0])
	}
	if !within(step, f.firstStep, f.lastStep) || !within(version, f.firstVersion, f.lastVersion) {
		return false
	}
	switch f.state {
	case "degenerate":
		return g.Spread == 0
	case "mixed":
		return g.Spread > 0
	case "trained":
		return g.Used != nil
	case "waiting":
		return g.Used == nil && g.Dropped == nil && !samples.OfEvaluation(block)
	case "evaluation":
		return samples.OfEvaluation(block)
	case "dropped":
		return g.Dropped != nil
	}
	return true
}

// within is true for an unknown value only when there are no bounds.
func within(v, first, last float64) bool {
	if math.IsNaN(v) {
		return math.IsInf(first, -1) && math.IsInf(last, 1)
	}
	return v >= first && v <= last
}

// listWithin bounds how long one request may read groups; the page asks for more.
const listWithin = 2 * time.Second

// listSamples answers with the newest groups that match, at most limit of them, and where to go on (after: the number
// of groups to skip).
func (r *run) listSamples(_ http.ResponseWriter, req *http.Request) (any, error) {
	q := parameters(req)
	f, most, skip := filterOf(q), q.whole("limit", 50, 1, 500), q.whole("after", 0, 0, 1<<30)
	if q.err != nil {
		return nil, q.err
	}
	out := groupList{Groups: []groupRow{}, Environments: []string{}}
	deadline, known, seen := time.Now().Add(listWithin), map[string]bool{}, 0
	read := 0 // groups
	for _, block := range r.recordedBlocks() {
		reader, err := r.record(block)
		if err != nil {
			return nil, err
		}
		list, lost := reader.Groups()
		out.Total, out.Lost = out.Total+len(list), out.Lost+lost
		if samples.OfEvaluation(block) {
			out.Evaluations += len(list)
		}
		for i := len(list) - 1; i >= 0; i-- {
			g := list[i]
			if !known[g.Environment] && len(known) < 1000 {
				known[g.Environment] = true
				out.Environments = append(out.Environments, environmentOf(g))
			}
			if seen++; seen <= skip || out.Next > 0 || !f.takes(block, g) {
				continue
			}
			if len(out.Groups) == most || read > 0 && time.Now().After(deadline) {
				out.Next = seen - 1
				continue
			}
			read++
			if row, ok := r.preview(reader, block, g, f.text); ok {
				out.Groups = append(out.Groups, row)
			}
		}
	}
	return out, nil
}

// preview is the row of a group with the beginning of its texts; ok is false when the text is not in it.
func (r *run) preview(reader *samples.Reader, block string, g *samples.Group, text string) (out groupRow, ok bool) {
	out = row(block, g)
	body, _, err := reader.Body(g)
	var group *trajectory.Group
	if err == nil {
		group, err = transcript.Parse(body)
	}
	if err != nil {
		out.Prompt = "unreadable: " + printable.Limit(err.Error(), 300)
		return out, text == ""
	}
	best := 0
	for i, s := range group.Scores {
		if i < len(group.Tokens) && s > group.Scores[best] {
			best = i
		}
	}
	v := r.reading(group)
	for i := range group.Tokens {
		if text == "" {
			ok = true
			break
		}
		prompt, completion := v.Texts(i)
		if ok = strings.Contains(strings.ToLower(prompt+"\n"+completion), text); ok {
			best = i
			break
		}
	}
	if len(group.Tokens) > 0 && ok {
		prompt, completion := v.Texts(best)
		out.Prompt, out.Best = printable.Text(printable.Limit(prompt, 300)), printable.Text(printable.Limit(completion, 300))
	}
	return out, ok
}

// group is the group that a request names.
func (r *run) group(req *http.Request) (*samples.Reader, *samples.Group, error) {
	block := req.PathValue("block")
	id, err := strconv.ParseUint(req.PathValue("id"), 10, 64)
	known := false
	for _, b := range r.recordedBlocks() {
		known = known || b == block
	}
	if err != nil || !known {
		return nil, nil, missing("there is no group %.40q of a block %.100q", req.PathValue("id"), block)
	}
	reader, err := r.record(block)
	if err != nil {
		return nil, nil, err
	}
	g := reader.Group(id)
	if g == nil {
		return nil, nil, missing("group %d is not in the record: it may be too old to be kept (samples_bytes of the "+
			"trajectories block)", id)
	}
	return reader, g, nil
}

// completionRow is a completion of a group.
type completionRow struct {
	Score     *number              `json:"score"`
	Advantage *number              `json:"advantage"` // mean over its trained tokens
	Tokens    int                  `json:"tokens"`
	Trained   int                  `json:"trained"`
	Mismatch  *number              `json:"mismatch"`          // mean |trainer − sampler| of log-probabilities
	Messages  []transcript.Message `json:"messages"`          // after those that all completions share
	Metrics   map[string]*number   `json:"metrics,omitempty"` // beside the score: of each reward function
	Finish    string               `json:"finish,omitempty"`  // "stop" or "length"
	Failed    string               `json:"failed,omitempty"`  // why it has no score
	Part      bool                 `json:"part,omitempty"`    // a further part of the rollout of the completion before it
	Masked    []maskedRow          `json:"masked,omitempty"`  // the model's tokens that are not trained
}

// maskedRow explains why tokens are not trained.
type maskedRow struct {
	Start int    `json:"start"`
	End   int    `json:"end"` // after the last
	Why   string `json:"why"`
}

// maxMasked bounds the spans of a completion.
const maxMasked = 64

// maxMetrics bounds the columns of a group, whose metrics the environment has named.
const maxMetrics = 64

// beside adds what the environment gave beside the score of a completion.
func (c *completionRow) beside(override map[string]any) {
	text := func(key string) string {
		s, _ := override[key].(string)
		return printable.Text(printable.Limit(s, 1000))
	}
	spans, _ := override[trajectory.OverrideMasked].([]any)
	for _, v := range spans[:min(len(spans), maxMasked)] {
		span, _ := v.(map[string]any)
		start, ok := span["start"].(float64)
		end, more := span["end"].(float64)
		why, _ := span["why"].(string)
		if ok && more && start >= 0 && end > start && end <= 1<<30 {
			c.Masked = append(c.Masked, maskedRow{int(start), int(end), printable.Text(printable.Limit(why, 200))})
		}
	}
	c.Finish, c.Failed = text(trajectory.OverrideFinish), text(trajectory.OverrideFailed)
	if c.Failed != "" { // its score in the group is the mean of the others
		none := number(math.NaN())
		c.Score = &none
	}
	metrics, _ := override[trajectory.OverrideMetrics].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(metrics)) {
		if v, ok := metrics[name].(float64); ok && len(c.Metrics) < maxMetrics {
			if c.Metrics == nil {
				c.Metrics = map[string]*number{}
			}
			n := number(v)
			c.Metrics[printable.Text(printable.Limit(name, 100))] = &n
		}
	}
}

// expected is the right answer, which the environment may have given.
func expected(g *trajectory.Group) string {
	text, _ := g.GroupOverrides[trajectory.OverrideExpected].(string)
	return printable.Text(printable.Limit(text, 10_000))
}

// showGroup answers with the conversation and the completions of a group.
func (r *run) showGroup(_ http.ResponseWriter, req *http.Request) (any, error) {
	reader, g, err := r.group(req)
	if err != nil {
		return nil, err
	}
	group, computed, err := read(reader, g)
	if err != nil {
		return nil, err
	}
	v := r.reading(group)
	out := wholeGroup{groupRow: row(req.PathValue("block"), g), Computed: computed != nil,
		Generation: group.GenerationParams, Completions: []completionRow{}, Expected: expected(group)}
	all := make([][]transcript.Message, len(group.Tokens))
	for i := range all {
		all[i] = v.Messages(i)
	}
	shared := transcript.Shared(all)
	out.Messages = []transcript.Message{}
	if len(all) > 0 {
		out.Messages = all[0][:shared]
	}
	columns := columnsOf(group, computed)
	for i := range group.Tokens {
		c := columns[i]
		score, advantage, mismatch := number(math.NaN()), number(mean(c.advantages)), number(c.mismatch())
		if i < len(group.Scores) {
			score = number(group.Scores[i])
		}
		one := completionRow{Score: &score, Advantage: &advantage, Tokens: len(group.Tokens[i]), Trained: len(c.positions),
			Mismatch: &mismatch, Messages: all[i][shared:]}
		if i < len(group.Overrides) {
			one.beside(group.Overrides[i])
			one.Part = group.Continues(i)
		}
		out.Completions = append(out.Completions, one)
	}
	return out, nil
}

func read(reader *samples.Reader, g *samples.Group) (*trajectory.Group, *samples.Computed, error) {
	body, computed, err := reader.Body(g)
	if err != nil {
		return nil, nil, &refusal{http.StatusGone, err.Error()}
	}
	group, err := transcript.Parse(body)
	if err != nil {
		return nil, nil, fmt.Errorf("reading group %d: %w", g.ID, err)
	}
	return group, computed, nil
}

// tokenRow is a token of a sequence.
type tokenRow struct {
	ID        int     `json:"id"`
	Text      string  `json:"text"`
	Trained   bool    `json:"trained"`
	Sampler   *number `json:"sampler,omitempty"`   // log-probability
	Trainer   *number `json:"trainer,omitempty"`   // likewise
	Advantage *number `json:"advantage,omitempty"` //
	Version   *int64  `json:"version,omitempty"`
}

// showSequence answers with tokens of one completion: offset, limit.
func (r *run) showSequence(_ http.ResponseWriter, req *http.Request) (any, error) {
	reader, g, err := r.group(req)
	if err != nil {
		return nil, err
	}
	q := parameters(req)
	offset, most := q.whole("offset", 0, 0, 1<<30), q.whole("limit", 4096, 1, 20_000)
	if q.err != nil {
		return nil, q.err
	}
	group, computed, err := read(reader, g)
	if err != nil {
		return nil, err
	}
	number, err := strconv.Atoi(req.PathValue("number"))
	if err != nil || number < 0 || number >= len(group.Tokens) {
		return nil, missing("group %d has no completion %.40q: it has %d, counted from 0", g.ID, req.PathValue("number"),
			len(group.Tokens))
	}
	rows := r.reading(group).tokens(number, columnsOf(group, computed)[number])
	out := struct {
		Tokens []tokenRow `json:"tokens"`
		Total  int        `json:"total"`
		First  int        `json:"first"` // the first trained token
	}{Tokens: []tokenRow{}, Total: len(rows)}
	for out.First < len(rows)-1 && !rows[out.First].Trained {
		out.First++
	}
	if offset < len(rows) {
		out.Tokens = rows[offset:min(offset+most, len(rows))]
	}
	return out, nil
}

func mean(values []float32) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sum := 0.0
	for _, v := range values {
		sum += float64(v)
	}
	return sum / float64(len(values))
}
