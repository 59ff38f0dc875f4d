package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/sizing"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
)

// needs is what the plugin of these tests requires of Python.
var needs = sdk.Packages{
	Requirements: []string{"engine-cpu==2", "torch==5"}, Needs: []string{"engine", "torch"},
	Aliases: map[string]string{"engine": "engine-cpu"},
}

// interpreters is a machine whose interpreters have these distributions; nil: they do not run.
func interpreters(t *testing.T, dir string, has map[string]string) Machine {
	t.Helper()
	m := healthy(dir)
	m.Run = func(_ context.Context, name string, args ...string) (string, error) {
		if name == "nvidia-smi" {
			return "NVIDIA H200, 143771, 12, 570.1\n", nil
		}
		if has == nil {
			return "", errors.New("bad interpreter")
		}
		found := map[string]string{}
		for _, n := range args[2:] {
			found[n] = has[n]
		}
		out, err := json.Marshal(found)
		return string(out), err
	}
	return m
}

func file(t *testing.T, path string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// Not parallel: it changes the process's environment, in which prepared environments are searched.
func TestBlocks(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	dir := t.TempDir()
	own := file(t, filepath.Join(dir, "venv", "bin", "python"))
	hub := filepath.Join(dir, "hub")
	file(t, filepath.Join(hub, "models--org--cached", "snapshots", "1", "config.json"))
	file(t, filepath.Join(dir, "local", "config.json"))
	all := map[string]string{"engine": "2", "torch": "5"}
	named := func(b *schema.Block) { b.Meta.Runtime = &sdk.Runtime{Python: own} }
	body := func(name, value string) func(*schema.Block) {
		return func(b *schema.Block) {
			named(b)
			b.Value = cty.ObjectVal(map[string]cty.Value{name: cty.StringVal(value)})
		}
	}
	sandboxed := func(b *schema.Block) {
		named(b)
		b.Value = cty.ObjectVal(map[string]cty.Value{"config": cty.ObjectVal(map[string]cty.Value{
			"sandbox": cty.StringVal("bubblewrap")})})
	}
	boxed := func(kind cty.Value) func(*schema.Block) {
		return func(b *schema.Block) {
			named(b)
			b.Value = cty.ObjectVal(map[string]cty.Value{"sandbox": cty.ObjectVal(map[string]cty.Value{"kind": kind})})
		}
	}
	bare := func(m *Machine) {
		m.LookPath = func(string) (string, error) { return "", exec.ErrNotFound }
	}
	gpus := func(p sdk.Placement) func(*schema.Block) {
		return func(b *schema.Block) { named(b); b.Meta.Placement = &p }
	}
	cuda := func(list string) func(*Machine) {
		return func(m *Machine) {
			m.LookupEnv = func(name string) (string, bool) { return list, name == "CUDA_VISIBLE_DEVICES" }
		}
	}
	for name, c := range map[string]struct {
		has     map[string]string
		block   func(*schema.Block)
		machine func(*Machine)
		what    string // the finding's name; empty: every finding is ok
		verdict Verdict
		found   string
		remedy  string
	}{
		"all there":          {all, named, nil, "", OK, "", ""},
		"under another name": {map[string]string{"engine-cpu": "2", "torch": "5"}, named, nil, "", OK, "", ""},
		"missing": {map[string]string{"torch": "5"}, named, nil, "python", Fail, "has no engine",
			"recipe init r.hcl"},
		"another version": {map[string]string{"engine": "2", "torch": "4"}, named, nil, "python", Warn,
			"torch is 4; tested with 5", "may work"},
		"not prepared": {map[string]string{}, nil, nil, "python", Fail,
			"its Python environment does not exist", "recipe init r.hcl"},
		"no such interpreter": {all, func(b *schema.Block) {
			b.Meta.Runtime = &sdk.Runtime{Python: "/no/such/python"}
		}, nil, "python", Fail, `"/no/such/python" cannot be run`, "python"},
		"does not run": {nil, named, nil, "python", Fail, "bad interpreter", "recipe init r.hcl"},
		"own requirements": {all, func(b *schema.Block) {
			b.Meta.Runtime = &sdk.Runtime{Requirements: []string{"x==1"}}
		}, nil, "python", Fail, "has not been prepared", "recipe init"},
		"elsewhere": {nil, gpus(sdk.Placement{GPUs: 9, Host: "other"}), nil, "", OK, "", ""},
		"external": {nil, func(b *schema.Block) { b.Meta.External = &decode.External{} }, nil, "", OK, "",
			""},
		"a GPU": {all, gpus(sdk.Placement{GPUs: 1}), nil, "", OK, "", ""},
		"no GPU": {all, gpus(sdk.Placement{GPUs: 1}), cuda(""), "gpus", Fail,
			"asks for 1 GPU; this machine has none", "quickstart.hcl"},
		"too few": {all, gpus(sdk.Placement{GPUs: 2}), nil, "gpus", Fail,
			"asks for 2 GPUs; this machine has 1 (0)", "lower gpus"},
		"another GPU": {all, gpus(sdk.Placement{Devices: []string{"3"}}), nil, "gpus", Fail,
			"asks for GPU 3; this machine has GPU 0", "let recipe choose"},
		"a program without a sandbox": {all, boxed(cty.StringVal("none")), bare, "", OK, "", ""},
		"a program of a model": {all, boxed(cty.StringVal("auto")), bare, "sandbox", Fail, "is not installed",
			"apt install bubblewrap"},
		"a program of a model, kind not known yet": {all, boxed(cty.UnknownVal(cty.String)), bare, "sandbox", Fail,
			"is not installed", "apt install bubblewrap"},
		"no bubblewrap": {all, sandboxed, func(m *Machine) {
			m.LookPath = func(string) (string, error) { return "", exec.ErrNotFound }
		}, "sandbox", Fail, "is not installed", "install bubblewrap"},
		"a bubblewrap that may not": {all, sandboxed, func(m *Machine) {
			before := m.Run
			m.Run = func(ctx context.Context, name string, args ...string) (string, error) {
				if name == "bwrap" {
					return "", errors.New("setting up uid map: Permission denied")
				}
				return before(ctx, name, args...)
			}
		}, "sandbox", Fail, "uid map", "user namespaces"},
		"a cached model": {all, body("model", "org/cached"), nil, "", OK, "", ""},
		"a model to download": {all, body("model", "org/other"), nil, "model", Warn,
			"the start downloads it, if the hub can be reached", "hf download org/other"},
		"a local model":        {all, body("model", "local"), nil, "", OK, "", ""},
		"a local model, wrong": {all, body("model", "./nowhere"), nil, "model", Fail, "does not exist", "correct model"},
		"offline": {all, body("model", "org/other"), func(m *Machine) {
			m.LookupEnv = func(name string) (string, bool) {
				v, ok := map[string]string{"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": hub}[name]
				return v, ok
			}
		}, "model", Fail, "HF_HUB_OFFLINE forbids", "unset HF_HUB_OFFLINE"},
		"a tokenizer that is there": {all, body("tokenizer", "./local"), nil, "", OK, "", ""},
		"a tokenizer of a hub":      {all, body("tokenizer", "org/other"), nil, "", OK, "", ""},
		"no tokenizer": {all, body("tokenizer", "./none"), nil, "files", Fail, "none does not exist",
			"correct tokenizer"},
		"no data set": {all, body("dataset", "/no/such/data.jsonl"), nil, "files", Fail,
			"/no/such/data.jsonl does not exist", "correct dataset"},
		"no data set beside the recipe": {all, body("dataset", "data/none.jsonl"), nil, "files", Fail,
			"data/none.jsonl does not exist", "correct dataset"},
		"a data set of a hub": {all, body("dataset", "org/data.v2"), nil, "", OK, "", ""},
		"no folder to run in": {all, body("path", "../none"), nil, "files", Fail, "none does not exist", "correct path"},
		"no script": {all, body("script", "none.py"), nil, "script", Fail, "none.py cannot be read",
			"correct script"},
	} {
		m := interpreters(t, dir, c.has)
		m.LookupEnv = func(name string) (string, bool) { return hub, name == "HF_HUB_CACHE" }
		if c.machine != nil {
			c.machine(&m)
		}
		b := &schema.Block{Addr: addr.Block{Kind: "inference", Plugin: "x", Name: "p"}, Value: cty.EmptyObjectVal}
		if c.block != nil {
			c.block(b)
		}
		r := &schema.Recipe{Dir: dir, File: filepath.Join(dir, "r.hcl"), Blocks: []*schema.Block{b}}
		bad := 0
		for _, f := range Blocks(context.Background(), m, "r.hcl", r,
			func(*schema.Block) sdk.Packages { return needs }) {
			if f.Verdict == OK {
				continue
			}
			bad++
			if f.Name != "inference.x.p "+c.what || f.Verdict != c.verdict || !strings.Contains(f.Found, c.found) ||
				!strings.Contains(f.Remedy, c.remedy) {
				t.Errorf("%s: %+v, want %s %s with %q and the remedy %q", name, f, c.verdict, c.what, c.found, c.remedy)
			}
		}
		if (bad > 0) != (c.what != "") {
			t.Errorf("%s: %d findings that are not ok, want %q", name, bad, c.what)
		}
	}
}

// A plan says where apply would fail on this machine, without starting a process.
func TestNotes(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	m := healthy(t.TempDir())
	m.Run = func(context.Context, string, ...string) (string, error) {
		t.Error("a program was started")
		return "", errors.New("no")
	}
	block := &schema.Block{Addr: addr.Block{Kind: "inference", Plugin: "x", Name: "p"}, Value: cty.EmptyObjectVal}
	block.Meta.Placement = &sdk.Placement{GPUs: 1}
	r := &schema.Recipe{File: "r.hcl", Blocks: []*schema.Block{block}}
	notes := func(h sizing.Machine) string {
		var lines []string
		for _, f := range Notes(m, h, r, func(*schema.Block) sdk.Packages { return needs }) {
			lines = append(lines, f.Severity+" "+f.Summary)
		}
		return strings.Join(lines, "\n")
	}
	const gpu, python = "info asks for 1 GPU; this machine has none: apply would fail here",
		"info its Python environment does not exist on this machine"
	if got := notes(sizing.Machine{NoGPU: true}); got != gpu+"\n"+python {
		t.Errorf("without a GPU and Python: %s", got)
	}
	if got := notes(sizing.Machine{Devices: []string{"0"}}); got != python {
		t.Errorf("without Python: %s", got)
	}
	e, _, err := interpreter.Of(sdk.Runtime{}, needs, "")
	if err != nil {
		t.Fatal(err)
	}
	file(t, e.Executable())
	if err := e.Finish(); err != nil {
		t.Fatal(err)
	}
	if got := notes(sizing.Machine{}); got != "" {
		t.Errorf("where nothing is known to be missing: %s", got)
	}
	block.Value = cty.ObjectVal(map[string]cty.Value{"sandbox": cty.ObjectVal(map[string]cty.Value{
		"kind": cty.StringVal("auto")})})
	m.LookPath = func(string) (string, error) { return "", exec.ErrNotFound }
	if got := notes(sizing.Machine{}); got != "info bubblewrap (bwrap) is not installed: apply would fail here" {
		t.Errorf("without bubblewrap: %s", got)
	}
	block.Value = cty.EmptyObjectVal
	block.Meta.Runtime = &sdk.Runtime{Venv: "/no/such"}
	if got := notes(sizing.Machine{}); got != "info its Python is not on this machine: apply would fail here" {
		t.Errorf("with a venv that is not there: %s", got)
	}
}

func TestTheCUDAOfABlockAndTheDriver(t *testing.T) {
	t.Parallel()
	gpus := &schema.Block{}
	gpus.Meta.Placement = &sdk.Placement{GPUs: 1}
	for name, c := range map[string]struct {
		driver string
		has    map[string]string
		block  *schema.Block
		want   Verdict // "": no finding
		found  string
	}{
		"old driver": {"535.104.05", map[string]string{"nvidia-cuda-runtime": "13.0.48"}, gpus, Warn, "older than 580"},
		"new enough": {"535.104.05", map[string]string{"nvidia-cuda-runtime-cu12": "12.8.90"}, gpus, OK,
			"CUDA 12.8.90, driver 535"},
		"without CUDA": {"535.104.05", map[string]string{}, gpus, "", ""},
		"on the CPU":   {"535.104.05", map[string]string{"nvidia-cuda-runtime": "13.0.48"}, &schema.Block{}, "", ""},
	} {
		m := interpreters(t, "/srv", c.has)
		before := m.Run
		m.Run = func(ctx context.Context, name string, args ...string) (string, error) {
			if name == "nvidia-smi" {
				return "NVIDIA L4, 23034, 0, " + c.driver + "\n", nil
			}
			return before(ctx, name, args...)
		}
		f, ok := cudaOf(t.Context(), m, c.block, blockPython{path: "/venv/bin/python"})
		if ok != (c.want != "") || f.Verdict != c.want || !strings.Contains(f.Found, c.found) {
			t.Errorf("%s: %+v, %v", name, f, ok)
		}
	}
}
