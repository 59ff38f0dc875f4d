package rescore

import (
	"encoding/json"
	"slices"

	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/sdk"
)

// message is one turn of a conversation.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

func messagesOf(g sdk.RecordedGroup) []message {
	var out []message
	_ = json.Unmarshal(g.Messages, &out) // it was checked when it was read
	return out
}

// task is what is read of a recorded task (sdk/environment).
type task struct {
	Messages int             `json:"messages"`
	Data     json.RawMessage `json:"data"`
}

// Columns are the columns of a row for a reward function: the members of a task's data, or the data itself as the
// column data, with the prompt, and with the right answer where there is none.
func (g *Group) Columns() (map[string]json.RawMessage, error) {
	var t task
	if err := json.Unmarshal(g.Task, &t); err != nil {
		return nil, err
	}
	row := map[string]json.RawMessage{}
	if len(t.Data) > 0 && json.Unmarshal(t.Data, &row) != nil {
		row = map[string]json.RawMessage{"data": t.Data}
	}
	if row == nil { // null
		row = map[string]json.RawMessage{}
	}
	set := func(name string, v any) (err error) {
		if _, ok := row[name]; !ok {
			row[name], err = json.Marshal(v)
		}
		return err
	}
	var prompt any = messagesOf(g.RecordedGroup)
	if t.Messages == 0 {
		prompt = lastOf(g)
	}
	if err := set("prompt", prompt); err != nil {
		return nil, err
	}
	if g.Expected != "" {
		return row, set("answer", g.Expected)
	}
	return row, nil
}

// WriteRows writes a data set of two rows, which have the columns of the group's task: one of them can be held out.
func (g *Group) WriteRows(path string) error {
	row, err := g.Columns()
	if err != nil {
		return err
	}
	line, err := json.Marshal(row)
	if err != nil {
		return err
	}
	return private.WriteFile(path, slices.Concat(line, []byte("\n"), line, []byte("\n")))
}

// ForFunction has a group scored by a reward function: its task's data becomes a row.
func (g *Group) ForFunction() {
	row, err := g.Columns()
	if err != nil {
		return // the environment reports what is wrong with the task
	}
	var whole map[string]json.RawMessage
	if json.Unmarshal(g.Task, &whole) != nil || whole["data"] == nil {
		return
	}
	if whole["data"], err = json.Marshal(row); err == nil {
		g.Task, _ = json.Marshal(whole) // JSON already
	}
}

// First is the first group that can be scored, of those with columns if there is one; nil: none can.
func (r *Record) First() (found *Group, reasons map[string]int) {
	reasons = map[string]int{}
	for _, e := range r.groups {
		g, err := e.read()
		if err != nil {
			reasons[err.Error()]++
			continue
		}
		var t struct {
			Data    json.RawMessage `json:"data"`
			Omitted string          `json:"omitted"`
		}
		if g.Unable == "" && json.Unmarshal(g.Task, &t) == nil && t.Data == nil {
			g.Unable = t.Omitted
		}
		switch {
		case g.Unable != "":
			reasons[g.Unable]++
		case string(t.Data) != "{}":
			return g, nil
		case found == nil:
			found = g
		}
	}
	return found, reasons
}
