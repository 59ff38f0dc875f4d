package engine

import (
	"context"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/recipe-rl/recipe/internal/tail"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/proc"
)

// LogFormat is how a program's log is read: stages of the start become phases, warnings and errors become events.
type LogFormat struct {
	Milestones []Milestone
	// Line captures the level (1) and the text (2) of a line.
	Line *regexp.Regexp
	// Levels are the program's names of levels that a person should see, with those of the event log: warn and error.
	Levels map[string]string
	// Noise are lines that every start prints and that need no action.
	Noise *regexp.Regexp
}

// Milestone is a line that a program writes when it reaches a stage.
type Milestone struct {
	Pattern *regexp.Regexp // two captured numbers mean: done, of a total
	Phase   sdk.Phase
	Message string // $1 … are what the pattern has captured
	Begins  string // the timed stage of the start that the line begins; empty: none
	Takes   bool   // from this line on the server holds all GPU memory whose amount it decides by what is free
}

// Stage is how far the start of a server has come, according to a line of its log.
type Stage struct {
	Phase       sdk.Phase
	Message     string
	Begins      string
	Takes       bool
	Done, Total int64 // of what message names; total 0: no count
}

// Stage reads a line; false when it says nothing about the start.
func (f LogFormat) Stage(line string) (Stage, bool) {
	for _, m := range f.Milestones {
		at := m.Pattern.FindStringSubmatchIndex(line)
		if at == nil {
			continue
		}
		s := Stage{Phase: m.Phase, Message: string(m.Pattern.ExpandString(nil, m.Message, line, at)), Begins: m.Begins,
			Takes: m.Takes}
		if len(at) == 6 {
			done, err1 := strconv.ParseInt(line[at[2]:at[3]], 10, 64)
			total, err2 := strconv.ParseInt(line[at[4]:at[5]], 10, 64)
			if err1 == nil && err2 == nil {
				s.Done, s.Total = done, total
			}
		}
		return s, true
	}
	return Stage{}, false
}

// Event returns the level and text of a line that a person should see in the run's events; everything else stays in
// the log file.
func (f LogFormat) Event(line string) (level, text string, ok bool) {
	if f.Line == nil {
		return "", "", false
	}
	m := f.Line.FindStringSubmatch(line)
	if m == nil || (f.Noise != nil && f.Noise.MatchString(line)) ||
		strings.HasPrefix(m[2], "  ") || strings.HasPrefix(m[2], "Traceback (") {
		return "", "", false // of a traceback only its last line is logged
	}
	level, ok = f.Levels[m[1]]
	return level, strings.TrimSpace(m[2]), ok
}

// follow reads a server's log until it ends.
func (r *replica) follow(ctx context.Context, program *proc.Program, times *timeline, adopted bool) {
	h := program.Handle()
	o := tail.Options{Done: program.Done()}
	if info, err := os.Stat(h.Log); err == nil && adopted {
		o.From = info.Size()
	}
	host, format := r.s.host, r.s.spec.Log
	last := ""
	lines := repeated{}
	err := tail.Follow(ctx, h.Log, o, func(raw []byte) {
		line := string(raw)
		if level, text, ok := format.Event(line); ok {
			if text, ok = lines.count(text); ok {
				host.Log(level, text)
			}
		}
		s, ok := format.Stage(line)
		if !ok || r.isLive() {
			return
		}
		if s.Total > 0 {
			host.Progress(s.Done, s.Total, s.Message)
		}
		if s.Takes {
			r.tookMemory(true)
		}
		times.enter(s.Begins)
		if s.Message != last {
			host.Phase(s.Phase, s.Message+times.before())
			last = s.Message
		}
	})
	if err != nil && ctx.Err() == nil {
		host.Log("warn", err.Error())
	}
}
