package view

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/recipe-rl/recipe/engine/evaluation"
	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/recipetest"
	"github.com/recipe-rl/recipe/engine/snapshot"
	"github.com/recipe-rl/recipe/engine/state"
)

func TestTextControlsNoTerminal(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a\x1b]52;c;cm0gLXJm\x07b":       "a␛]52;c;cm0gLXJm␇b",
		"no\x1b[2K\x1b[1Ayes":            "no␛[2K␛[1Ayes",
		"\x1b[8mhidden":                  "␛[8mhidden",
		"one\rtwo":                       "one␍two",
		"one\btwo\x7f":                   "one␈two␡",
		"\u009b31m\u202eabc":             "⟦U+009B⟧31m⟦U+202E⟧abc",
		"\x9b2J\xff":                     "\ufffd2J\ufffd",
		"a\r\nb\tc\n":                    "a\r\nb\tc\n",
		"\x1b[31m\x1b[1mError:\x1b[0m x": "\x1b[31m\x1b[1mError:\x1b[0m x",
		"\x1b[1;34m─▶\x1b[0m\x1b[m":      "\x1b[1;34m─▶\x1b[0m\x1b[m",
		"\x1b[1;8mhid\x1b[30;40m":        "␛[1;8mhid␛[30;40m",
		"\x1b[11111111m\x1b[38;5;0m":     "␛[11111111m␛[38;5;0m",
		"日本語 é\n":                        "日本語 é\n",
	} {
		for size := 1; size <= len(text); size++ { // however the text is cut into writes
			var out bytes.Buffer
			g := &guard{to: &out}
			for rest := []byte(text); len(rest) > 0; rest = rest[min(size, len(rest)):] {
				if n, err := g.Write(rest[:min(size, len(rest))]); n != min(size, len(rest)) || err != nil {
					t.Fatal(n, err)
				}
			}
			if out.String() != want {
				t.Errorf("%q in writes of %d becomes %q, want %q", text, size, out.String(), want)
			}
		}
	}
}

// What Style writes passes the guard, or a command at a terminal would show the codes of its colors.
func TestTheGuardKnowsAllColors(t *testing.T) {
	t.Parallel()
	s := Style{Color: true}
	for _, paint := range []func(string) string{s.Bold, s.Dim, s.Red, s.Green, s.Yellow, s.Cyan} {
		var out bytes.Buffer
		if _, err := io.WriteString(&guard{to: &out}, paint("x")); err != nil || out.String() != paint("x") {
			t.Errorf("%q becomes %q, %v", paint("x"), out.String(), err)
		}
	}
}

func TestALineIsHarmless(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a\nb\r\nc\td":             "a b c d",
		"\x1b[31mred\x1b[0m ─":     "\x1b[31mred\x1b[0m ─",
		"\u009b2J\u202e":           "⟦U+009B⟧2J⟦U+202E⟧",
		"the end \x1b":             "the end ␛",
		"the end \x1b[3":           "the end ␛[3",
		"\x1b]8;;http://x\x1b\\go": "␛]8;;http://x␛\\go",
	} {
		if got := Harmless(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

// A name with a line break must not look like a line of its own.
func TestNamesForgeNoLines(t *testing.T) {
	t.Parallel()
	const name = "a\nforged"
	lines := []string{Line(Style{}, event.Event{Type: event.Phase, Phase: name}),
		Line(Style{}, event.Event{Type: event.Operation, Action: name})}
	var out bytes.Buffer
	snap := &snapshot.Snapshot{Blocks: map[string]*snapshot.Block{name: {Address: name, Phase: name}}}
	if err := Status(&out, Style{}, name, name, snap, time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := Outputs(&out, "", map[string]state.RecordedOutput{name: {}}); err != nil {
		t.Fatal(err)
	}
	findings(&out, Style{}, []plan.Finding{{Summary: name}})
	TestResult(&out, Style{}, &recipetest.Result{File: name})
	scores := Scores{Policy: name, Summary: evaluation.Summary{Failed: 1, Reasons: map[string]int{name: 1}}}
	tried := Tried{Policy: name, Groups: []TriedGroup{{Completions: []TriedCompletion{{
		Messages: []TriedMessage{{Role: name}}, Metrics: map[string]float64{name: 1}}}}}}
	if err := errors.Join(scores.Show(&out, Style{}), tried.Show(&out, Style{}),
		DryRun{Says: []string{name}, Prompt: []TriedMessage{{Role: name}}}.Show(&out, Style{})); err != nil {
		t.Fatal(err)
	}
	for _, line := range append(lines, strings.Split(out.String(), "\n")...) {
		if strings.HasPrefix(line, "forged") || strings.Contains(line, "\nforged") {
			t.Errorf("got the line %q", line)
		}
	}
}

func FuzzGuard(f *testing.F) {
	f.Add([]byte("a\x1b[3"), []byte("1m\x1b[2J"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		var out bytes.Buffer
		g := &guard{to: &out}
		_, _ = g.Write(a)
		_, _ = g.Write(b)
		text := out.String()
		text = regexp.MustCompile(`\x1b\[[0-6;]*m|\r\n|\n|\t`).ReplaceAllString(text, "")
		if i := strings.IndexFunc(text, unicode.IsControl); i >= 0 {
			t.Errorf("%q and %q become %q", a, b, out.String())
		}
	})
}
