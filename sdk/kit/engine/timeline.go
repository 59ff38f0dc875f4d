package engine

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/internal/regular"
)

// timeline measures the stages of a server's start, beside their durations at the last start in this block.
type timeline struct {
	file  string // where the last start's are kept
	now   func() time.Time
	began time.Time
	last  map[string]float64

	mu      sync.Mutex
	stages  []stageTime
	entered time.Time // the newest stage
	over    bool
}

// stageTime is a stage and how long it took.
type stageTime struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
}

// newTimeline begins with the first stage. Dir is the block's folder, name that of the server's log.
func newTimeline(dir, name, first string, now func() time.Time) *timeline {
	t := &timeline{file: filepath.Join(dir, name+".starts.json"), now: now, began: now(), last: map[string]float64{}}
	var before []stageTime
	if data, err := regular.ReadFile(t.file, regular.Record); err == nil && json.Unmarshal(data, &before) == nil {
		for _, s := range before {
			t.last[s.Name] += s.Seconds
		}
	}
	t.enter(first)
	return t
}

// enter ends the stage before and begins one; the same again changes nothing.
func (t *timeline) enter(stage string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.stages); stage == "" || t.over || n > 0 && t.stages[n-1].Name == stage {
		return
	}
	t.leaveLocked()
	t.stages, t.entered = append(t.stages, stageTime{Name: stage}), t.now()
}

func (t *timeline) leaveLocked() {
	if n := len(t.stages); n > 0 {
		t.stages[n-1].Seconds = t.now().Sub(t.entered).Seconds()
	}
}

// before describes how long the stage under way took the last time; empty: unknown, or too short to matter.
func (t *timeline) before() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.stages); n > 0 {
		if s := t.last[t.stages[n-1].Name]; s >= 1 {
			return fmt.Sprintf(" (%.0f s last time)", s)
		}
	}
	return ""
}

// end stores how long each stage took, and returns it as a line.
func (t *timeline) end() (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leaveLocked()
	t.over = true
	var parts []string
	for _, s := range t.stages {
		parts = append(parts, fmt.Sprintf("%s %.1f s", s.Name, s.Seconds))
	}
	line := fmt.Sprintf("ready after %.1f s: %s", t.now().Sub(t.began).Seconds(), strings.Join(parts, ", "))
	data, err := json.Marshal(t.stages)
	if err == nil {
		err = regular.WriteFile(t.file, append(data, '\n'))
	}
	if err != nil {
		return line, fmt.Errorf("store how long the start took: %w", err)
	}
	return line, nil
}
