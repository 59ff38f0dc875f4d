// Package rescore scores the recorded groups of a run again, with the environment or a reward function as it is now,
// and compares the scores with those of the run. It asks no model.
package rescore

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/recipe-rl/recipe/engine/transcript"
	"github.com/recipe-rl/recipe/internal/samples"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// Record is the groups that a run has recorded of one environment, in the order of their posts.
type Record struct {
	readers []*samples.Reader
	groups  []entry
}

// entry is a group of a record.
type entry struct {
	key      Key
	reader   *samples.Reader
	group    *samples.Group
	function bool // a function scores it
}

// Key names a recorded group: the folder of its record below samples/, its id there and when it was posted.
type Key struct {
	Record string `json:"record"`
	ID     uint64 `json:"id"`
	Time   int64  `json:"time"` // Unix, nanoseconds
}

// Open reads which groups a run directory has of an environment of this name. The trajectory API adds a number to the
// names that environments register with. Function: a function scores them, which needs no recorded task.
func Open(runDir, environment string, function bool) (*Record, error) {
	root, err := os.OpenRoot(runDir)
	if err != nil {
		return nil, fmt.Errorf("read the record of samples: %w", err)
	}
	defer func() { _ = root.Close() }()
	folders, err := fs.ReadDir(root.FS(), "samples")
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("read the record of samples: %w", err)
	}
	named := regexp.MustCompile("^" + regexp.QuoteMeta(environment) + `(_\d+)?$`)
	r := &Record{}
	for _, f := range folders {
		if !f.IsDir() || !strings.HasPrefix(f.Name(), string(kind.Trajectories)+".") {
			continue
		}
		reader, err := samples.NewReaderIn(runDir, filepath.Join("samples", f.Name()))
		if err != nil {
			return nil, err
		}
		r.readers = append(r.readers, reader)
		if _, err := reader.Refresh(); err != nil {
			r.Close()
			return nil, err
		}
		list, _ := reader.Groups()
		for _, g := range list {
			if named.MatchString(g.Environment) {
				r.groups = append(r.groups, entry{Key{f.Name(), g.ID, g.Time.UnixNano()}, reader, g, function})
			}
		}
	}
	return r, nil
}

// Only leaves out the groups whose task comes from another block than the one at an address: blocks of several modules
// or plugins may register with one name.
func (r *Record) Only(address string) {
	r.groups = slices.DeleteFunc(r.groups, func(e entry) bool {
		body, _, err := e.reader.Body(e.group)
		of := gjson.GetBytes(body, "task.environment")
		return err == nil && of.Exists() && of.String() != address
	})
}

// Close releases memory.
func (r *Record) Close() {
	for _, reader := range r.readers {
		reader.Close()
	}
}

// Groups is how many groups the record has.
func (r *Record) Groups() int { return len(r.groups) }

// Versions are the oldest and the newest policy version that sampled the groups; false: not known.
func (r *Record) Versions() (oldest, newest int64, known bool) {
	for _, e := range r.groups {
		if len(e.group.Versions) != 2 {
			continue
		}
		if !known {
			oldest, newest, known = e.group.Versions[0], e.group.Versions[1], true
		}
		oldest, newest = min(oldest, e.group.Versions[0]), max(newest, e.group.Versions[1])
	}
	return oldest, newest, known
}

// Group is a recorded group as it is scored again.
type Group struct {
	Key    Key
	Body   json.RawMessage
	Before []*float64 // scores of the run, one a rollout; nil where there is none
	sdk.RecordedGroup
	Unable string // why it cannot be scored; then RecordedGroup is not whole
	prompt int    // tokens
	turns  bool   // rollouts have several answers
}

// body is the recorded text of the group.
func (e entry) body() (json.RawMessage, error) {
	body, _, err := e.reader.Body(e.group)
	return body, err
}

// read reads one group.
func (e entry) read() (*Group, error) {
	body, err := e.body()
	if err != nil {
		return nil, err
	}
	return e.parse(body)
}

func (e entry) parse(body json.RawMessage) (*Group, error) {
	g, err := transcript.Parse(body)
	if err != nil {
		return nil, fmt.Errorf("read group %d of %s: %w", e.key.ID, e.key.Record, err)
	}
	out := &Group{Key: e.key, Body: body}
	for i := range g.Tokens {
		out.Before = append(out.Before, before(g, i))
	}
	out.Unable = out.fill(g, e.function)
	return out, nil
}

// before is the score of a sequence in the run; nil: it has none.
func before(g *trajectory.Group, i int) *float64 {
	if i >= len(g.Scores) || text(g, i, trajectory.OverrideFailed) != "" {
		return nil
	}
	return &g.Scores[i]
}

// text is a text among the overrides of a sequence.
func text(g *trajectory.Group, i int, key string) string {
	if i >= len(g.Overrides) {
		return ""
	}
	s, _ := g.Overrides[i][key].(string)
	return s
}

// Reasons why a group cannot be scored again.
const (
	noTask   = "what its scorer was given is not recorded: its environment cannot score again, or is of an older version"
	unclear  = "the recorded conversations of its rollouts do not begin with the same prompt"
	parts    = "its rollouts have several sequences"
	noAnswer = "its completions are not recorded as messages"
)

// fill sets what the scorer gets, and returns why it cannot.
func (out *Group) fill(g *trajectory.Group, function bool) string {
	if len(g.Task) == 0 && !function {
		return noTask
	}
	out.Task = g.Task
	out.Expected, _ = g.GroupOverrides[trajectory.OverrideExpected].(string)
	var said [][]json.RawMessage
	if json.Unmarshal(g.Messages, &said) != nil || len(said) != len(g.Tokens) {
		return noAnswer
	}
	for i := range g.Tokens {
		if g.Continues(i) {
			return parts
		}
	}
	out.prompt, out.turns = promptOf(g), severalTurns(g)
	if len(out.Task) > 0 {
		return out.answers(g, said)
	}
	// Without a recorded task a function gets the conversation alone.
	fill := out.answers
	if out.turns {
		fill = out.conversations
	}
	if why := fill(g, said); why != "" {
		return why
	}
	out.Task, _ = json.Marshal(map[string]any{"v": 1, "messages": len(messagesOf(out.RecordedGroup)),
		"data": struct{}{}}) // numbers
	return ""
}

// answers sets the completions of rollouts of one answer, and returns why it cannot.
func (out *Group) answers(g *trajectory.Group, said [][]json.RawMessage) string {
	for i, tokens := range g.Tokens {
		var last struct {
			Role    string `json:"role"`
			Content string `json:"content"`
		}
		n := len(said[i])
		if n < 2 || json.Unmarshal(said[i][n-1], &last) != nil || last.Role != "assistant" || out.prompt > len(tokens) {
			return noAnswer
		}
		c := sdk.RecordedCompletion{Finish: text(g, i, trajectory.OverrideFinish),
			Stop: text(g, i, trajectory.OverrideStop), Tokens: tokens[out.prompt:]}
		c.Text = strings.TrimSuffix(last.Content, c.Stop)
		if i < len(g.InferenceLogprobs) && len(g.InferenceLogprobs[i]) == len(tokens) {
			c.Logprobs = g.InferenceLogprobs[i][out.prompt:]
		}
		if i == 0 {
			out.Messages, _ = json.Marshal(said[0][:n-1]) // JSON already
		} else if !same(said[i][:len(said[i])-1], said[0][:len(said[0])-1]) {
			return noAnswer
		}
		out.Completions = append(out.Completions, c)
	}
	return ""
}

// conversations sets the completions of rollouts of several answers, each with its turns, and returns why it cannot.
// The prompt ends where the first answer begins: a rollout has as many answers as it has stretches of trained tokens.
func (out *Group) conversations(g *trajectory.Group, said [][]json.RawMessage) string {
	prompt := -1
	for i, mask := range g.Masks {
		if n := stretches(mask); n > 0 && i < len(said) {
			prompt = nthLastAnswer(said[i], n)
			break
		}
	}
	if prompt < 1 {
		return noAnswer
	}
	for i, tokens := range g.Tokens {
		if len(said[i]) <= prompt || !same(said[i][:prompt], said[0][:prompt]) || roleOf(said[i][prompt]) != assistant ||
			out.prompt > len(tokens) {
			return unclear
		}
		c := sdk.RecordedCompletion{Finish: text(g, i, trajectory.OverrideFinish),
			Stop: text(g, i, trajectory.OverrideStop), Tokens: tokens[out.prompt:]}
		if i < len(g.InferenceLogprobs) && len(g.InferenceLogprobs[i]) == len(tokens) {
			c.Logprobs = g.InferenceLogprobs[i][out.prompt:]
		}
		c.Messages, _ = json.Marshal(said[i][prompt:]) // JSON already
		var last struct {
			Content string `json:"content"`
		}
		if at := nthLastAnswer(said[i], 1); json.Unmarshal(said[i][at], &last) == nil {
			c.Text = strings.TrimSuffix(last.Content, c.Stop)
		}
		out.Completions = append(out.Completions, c)
	}
	out.Messages, _ = json.Marshal(said[0][:prompt]) // JSON already
	return ""
}

const assistant = "assistant"

func roleOf(message json.RawMessage) string { return gjson.GetBytes(message, "role").String() }

// nthLastAnswer is the index of the nth last answer of a conversation; -1: it has fewer.
func nthLastAnswer(said []json.RawMessage, n int) int {
	for i := len(said) - 1; i >= 0; i-- {
		if roleOf(said[i]) == assistant {
			if n--; n == 0 {
				return i
			}
		}
	}
	return -1
}

// stretches is the number of stretches of trained tokens of a sequence.
func stretches(mask []int) int {
	n, trained := 0, false
	for _, m := range mask {
		if m != masked && !trained {
			n++
		}
		trained = m != masked
	}
	return n
}

// severalTurns reports whether a sequence has several stretches of trained tokens: between two answers is what the
// model was given.
func severalTurns(g *trajectory.Group) bool {
	return slices.ContainsFunc(g.Masks, func(mask []int) bool { return stretches(mask) > 1 })
}

func same(a, b []json.RawMessage) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

// masked is the mask of a token that is not trained on.
const masked = -100

// promptOf is how many tokens of prompt each sequence has: those before the first trained token of any. A rollout that
// has failed has none.
func promptOf(g *trajectory.Group) int {
	for _, mask := range g.Masks {
		for i, m := range mask {
			if m != masked {
				return i
			}
		}
	}
	return 0
}
