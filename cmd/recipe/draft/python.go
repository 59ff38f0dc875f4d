package draft

import (
	"bytes"
	"context"
	_ "embed" // for reader
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/sdk"
)

// reader describes a Python file or a shell script. It parses them and imports nothing of them.
//
//go:embed read.py
var reader string

const (
	maxSource   = 4 << 20          // bytes of a source
	maxOutput   = 64 << 20         // bytes that the program may print
	readTimeout = 30 * time.Second // for the program that reads it
)

// setting is one setting of a source. It has a value, or the text of a shell, or, where the value is known only when
// the program runs, the expression.
type setting struct {
	Name  string          `json:"name"`
	Line  int             `json:"line"`
	Value json.RawMessage `json:"value"`
	Text  *string         `json:"text"`
	Texts []string        `json:"texts"` // values of a flag of a command
	Code  string          `json:"code"`
}

// literal is the value; nil: it is None, or not known.
func (s setting) literal() any {
	if s.Code != "" || len(s.Value) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(s.Value))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil
	}
	return v
}

// known reports whether the source has the value as a literal.
func (s setting) known() bool { return s.Code == "" }

// shown is the value as the source has it.
func (s setting) shown() string {
	text := s.Code
	if text == "" {
		text = string(s.Value)
	}
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > 60 {
		text = string(r[:59]) + "…"
	}
	return text
}

// whole is the value as a whole number; other where it is none.
func (s setting) whole(other int) int {
	n, ok := s.literal().(json.Number)
	if !ok {
		return other
	}
	f, err := n.Float64()
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<40 {
		return other
	}
	return int(f)
}

// description is what the reader found in a Python file.
type description struct {
	Error *struct {
		Line int    `json:"line"`
		Text string `json:"text"`
	} `json:"error"`
	TRL             *trlScript    `json:"trl"`
	Atropos         []environment `json:"atropos"`
	CLI             []string      `json:"cli"`
	Taskset         bool          `json:"taskset"`
	LoadEnvironment bool          `json:"load_environment"`
	Functions       []signature   `json:"functions"`
	Names           []string      `json:"names"`
	Dependencies    []string      `json:"dependencies"` // packages that the head of the file names
	Settings        []setting     `json:"settings"`     // of a shell script
	Program         string        `json:"program"`      // that the shell script starts: of verl, or trl grpo
	Script          string        `json:"script"`       // that it starts instead
}

type signature struct {
	Name      string   `json:"name"`
	Line      int      `json:"line"`
	Arguments []string `json:"arguments"`
	Kwargs    bool     `json:"kwargs"`
}

// environment is a class of Atropos.
type environment struct {
	Name     string    `json:"name"`
	Line     int       `json:"line"`
	Settings []setting `json:"settings"`
	Servers  []setting `json:"servers"`
}

// trlScript is a call of GRPOTrainer with what it was given.
type trlScript struct {
	Line          int       `json:"line"`
	Trainers      int       `json:"trainers"`
	Config        string    `json:"config"`
	Settings      []setting `json:"settings"`
	Peft          []setting `json:"peft"`
	Model         *setting  `json:"model"`
	Rewards       []reward  `json:"rewards"`
	RewardSource  []string  `json:"reward_source"`
	Dataset       []setting `json:"dataset"` // arguments of load_dataset
	DatasetSource []string  `json:"dataset_source"`
	DatasetLine   int       `json:"dataset_line"`
	Other         []setting `json:"other"`
}

// reward is one of reward_funcs: of a module, of the script itself, or a model.
type reward struct {
	Name   string `json:"name"`
	Module string `json:"module"`
	Model  string `json:"model"`
	Code   string `json:"code"`
	Line   int    `json:"line"`
}

// sourceText is the text of the source.
func sourceText(name string) (string, error) {
	text, err := regular.FollowFile(name, maxSource)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", &sdk.Error{Summary: "--from " + name + ": there is no such file"}
	case err != nil:
		return "", fmt.Errorf("--from %s: %w", name, err)
	}
	return string(text), nil
}

// short keeps what is written, up to a limit.
type short struct {
	bytes.Buffer
	left int
}

func (s *short) Write(p []byte) (int, error) {
	if s.left -= len(p); s.left < 0 {
		return 0, fmt.Errorf("it printed more than %d MiB", maxOutput>>20)
	}
	return s.Buffer.Write(p)
}

// isHere reports whether there is a file or a folder of this name.
func isHere(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func describePython(name, text string) (description, error) { return describe(name, "python", text) }

func describeShell(name, text string) (description, error) { return describe(name, "shell", text) }

// describe has Python parse a source. Python runs isolated: it imports nothing from the folder.
func describe(name, language, text string) (description, error) {
	python, err := exec.LookPath("python3")
	if err != nil {
		return description{}, &sdk.Error{Summary: "reading " + name + " needs Python 3.10 or newer",
			Remedy: "install it, so that PATH has python3"}
	}
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-I", "-S", "-X", "utf8", "-c", reader, language)
	cmd.Stdin = strings.NewReader(text)
	out, log := short{left: maxOutput}, short{left: maxOutput}
	cmd.Stdout, cmd.Stderr = &out, &log
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("no answer within %s", readTimeout)
		}
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		return description{}, &sdk.Error{Summary: fmt.Sprintf("%s cannot be read by %s: %v", name, python, err),
			Remedy: "Python 3.10 or newer is needed; its last line was: " + lines[len(lines)-1]}
	}
	var d description
	if err := json.Unmarshal(out.Bytes(), &d); err != nil {
		return description{}, fmt.Errorf("%s: the reader's output: %w", name, err)
	}
	if d.Error != nil {
		return description{}, &sdk.Error{Summary: name + ", line " + strconv.Itoa(d.Error.Line) + ": " + d.Error.Text,
			Remedy: "correct the file; python3 -m py_compile names the place"}
	}
	return d, nil
}
