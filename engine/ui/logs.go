package ui

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/printable"
	"github.com/recipe-rl/recipe/schema/addr"
)

// keptLines is how many of the newest lines the page can show. recipe logs shows all.
const keptLines = 20_000

// logLine is one line of the log.
type logLine struct {
	Seq     uint64    `json:"seq"`
	Time    time.Time `json:"time"`
	Type    string    `json:"type"`
	Address string    `json:"address,omitempty"`
	Level   string    `json:"level"`
	Text    string    `json:"text"`
	Repeats int       `json:"repeats,omitempty"`
}

type logLines struct{ list []logLine }

func (l *logLines) take(e event.Event) {
	line := logLine{Seq: e.Seq, Time: e.Time, Type: string(e.Type), Address: e.Address, Level: e.Level, Repeats: e.Repeats}
	text := e.Message
	switch e.Type {
	case event.LogLine, event.Notice:
	case event.Stalled:
		text = "no progress: " + text
	case event.Phase:
		text = strings.TrimSuffix(e.Phase+": "+text, ": ")
		if e.Phase == "failed" {
			line.Level = "error"
		}
	case event.RunStarted:
		text = "run started: " + text
	case event.RunEnded:
		text = strings.TrimSuffix("run "+e.Phase+": "+text, ": ")
	case event.Restart:
		line.Level, text = "warn", "restart: "+text
	case event.Checkpoint:
		text = "checkpoint of step " + itoa(e.Step) + ": " + e.Path
	default:
		return
	}
	if e.Remedy != "" {
		text += "; what to do: " + e.Remedy
	}
	if line.Level == "" {
		line.Level = "info"
	}
	line.Text = printable.Text(printable.Limit(text, shortText))
	l.list = append(l.list, line)
	if len(l.list) > keptLines+keptLines/8 {
		l.list = append([]logLine(nil), l.list[keptLines/8:]...)
	}
}

var levels = map[string]int{"debug": 0, "info": 1, "warn": 2, "error": 3}

// logsOf answers with the newest lines that match: address, level (at least), grep (part of the text, in any case),
// before (a number of an event), limit.
func (r *run) logsOf(_ http.ResponseWriter, req *http.Request) (any, error) {
	q := parameters(req)
	most, before := q.whole("limit", 300, 1, 2000), uint64(q.number("before", 1e18, 0, 1e18))
	if q.err != nil {
		return nil, q.err
	}
	wanted, least, part := q.text("address"), levels[q.text("level")], strings.ToLower(q.text("grep"))
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := []logLine{}
	for i := len(r.lines.list) - 1; i >= 0 && len(out) < most; i-- {
		line := r.lines.list[i]
		if line.Seq >= before || levels[line.Level] < least || wanted != "" && !of(line.Address, wanted) ||
			part != "" && !strings.Contains(strings.ToLower(line.Text), part) {
			continue
		}
		out = append(out, line)
	}
	return out, nil
}

// of reports whether an address is the wanted one, or an instance of it.
func of(address, wanted string) bool {
	if address == wanted {
		return true
	}
	a, err := addr.Parse(address)
	return err == nil && a.Config().String() == wanted
}

func itoa(v int64) string { return strconv.FormatInt(v, 10) }
