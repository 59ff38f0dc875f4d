package taskfolder

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRewards(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		json, text string // "": the file is not there
		score      float64
		want       string // of the error
	}{
		"text":              {text: " 0.5\n", score: 0.5},
		"JSON first":        {json: `{"reward": 2}`, text: "1", score: 2},
		"a bad JSON first":  {json: `{"reward": 2`, text: "1", want: "reward.json has"},
		"a single member":   {json: `{"share": 3}`, score: 3},
		"two members":       {json: `{"a": 1, "b": 2}`, want: `no member "reward"`},
		"a bare number":     {json: `1`, want: "expected an object"},
		"none":              {want: "neither"},
		"no number in text": {text: "one", want: `reward.txt has "one"`},
		"hexadecimal":       {text: "0x1p-2", want: "expected a finite number"},
		"infinite":          {text: "inf", want: "expected a finite number"},
		"too large":         {json: `{"reward": 1e999}`, want: "reward.json has"},
		"not a number":      {json: `{"reward": NaN}`, want: "reward.json has"},
		"a text":            {json: `{"reward": "1"}`, want: `the member "reward"`},
		"null":              {json: `null`, want: "expected an object"},
		"a null":            {json: `{"reward": null}`, want: `the member "reward"`},
		"true":              {json: `{"reward": true}`, score: 1},
		"empty":             {text: " ", want: `reward.txt has ""`},
	} {
		dir := t.TempDir()
		for file, text := range map[string]string{"reward.json": c.json, "reward.txt": c.text} {
			if text == "" {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		rewards, err := Rewards(dir)
		score := 0.0
		if err == nil {
			score, _, err = Score(rewards)
		}
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || score != c.score {
			t.Errorf("%s: %v, %v; want %v, %q", name, score, err, c.score, c.want)
		}
	}
}

// A pattern of COPY finds files by name, and follows no link: not in circles of them.
func TestPatternsOfCopy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"environment/Dockerfile": "FROM a\nWORKDIR /app\nCOPY *.txt */*.tx? /app/all/\n"})
	for _, name := range []string{"one", "two", "three"} {
		if err := os.Symlink(".", filepath.Join(dir, "environment", name)); err != nil {
			t.Fatal(err)
		}
	}
	task, problems := Read(dir, nil)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if got := strings.Join(task.Copies[0].Sources, " "); got != "a.txt b/c.txt" {
		t.Errorf("files %s", got)
	}
}
