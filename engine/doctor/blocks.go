package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/sizing"
	"github.com/recipe-rl/recipe/engine/tracking"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk"
)

// Blocks are the findings about what a recipe's blocks need of this machine: their Python, their GPUs, their models,
// scripts and other files, and the store of their checkpoints.
func Blocks(ctx context.Context, m Machine, file string, r *schema.Recipe, packages Packages) []Finding {
	var found []Finding
	hardware := Hardware(ctx, m)
	models := map[string]bool{}
	for _, b := range r.Blocks {
		if b.Meta.External != nil {
			continue
		}
		add := func(what string, f Finding) {
			f.Name = b.Addr.String() + " " + what
			found = append(found, f)
		}
		if f, ok := storeOf(ctx, m, b); ok {
			add("store", f)
		}
		if elsewhere(b) {
			continue
		}
		if f, ok := gpusOf(hardware, b); ok {
			add("gpus", f)
		}
		t, python := runtimeOf(m, r, b, packages)
		if python {
			add("python", pythonOf(ctx, m, file, t))
			if f, ok := cudaOf(ctx, m, b, t); ok {
				add("cuda", f)
			}
		}
		if a, ok := m.agentNamed(b); ok {
			add("agent", agentOf(ctx, m, file, r, b, a, agentPython(m, r, b, t, python)))
		}
		if f, ok := scriptOf(r, b); ok {
			add("script", f)
		}
		if f, ok := sandboxOf(ctx, m, b); ok {
			add("sandbox", f)
		}
		for _, f := range missing(r, b, python) {
			add("files", f)
		}
		if name := text(b, "model"); python && name != "" && !models[name] {
			models[name] = true
			add("model", modelOf(m, r, b, name))
		}
	}
	for _, t := range r.Trackers { // as a block with the packages of the tracker
		b := &schema.Block{Meta: decode.Meta{Runtime: &t.Runtime}}
		needs := func(*schema.Block) sdk.Packages {
			p := tracking.Packages(t.Tracker)
			p.Needs = []string{t.Tracker}
			if t.Tracker == "mlflow" {
				p.Needs = []string{"mlflow-skinny"}
			}
			return p
		}
		if tracking.Packages(t.Tracker).Empty() {
			continue
		}
		if python, ok := runtimeOf(m, r, b, needs); ok {
			f := pythonOf(ctx, m, file, python)
			if f.Verdict == Fail { // a run goes on without its trackers
				f.Verdict = Warn
			}
			f.Name = "tracking." + t.Tracker + "." + t.Name + " python"
			found = append(found, f)
		}
	}
	return found
}

// gpusOf compares the GPUs that a block asks for with those of the machine; false when it asks for none.
func gpusOf(h sizing.Machine, b *schema.Block) (Finding, bool) {
	p := b.Meta.Placement
	if p == nil || (p.GPUs == 0 && len(p.Devices) == 0) {
		return Finding{}, false
	}
	want := max(p.GPUs, len(p.Devices))
	asks := "asks for " + count(want, "GPU")
	switch {
	case h.NoGPU:
		return Finding{Verdict: Fail, Found: asks + "; this machine has none", Remedy: noGPURemedy}, true
	case len(h.Devices) == 0:
		return Finding{Verdict: Warn, Found: asks + "; the GPUs of this machine are unknown",
			Remedy: "see the gpu check above"}, true
	case want > len(h.Devices):
		return Finding{Verdict: Fail, Found: fmt.Sprintf("%s; this machine has %d (%s)", asks, len(h.Devices),
			strings.Join(h.Devices, ", ")),
			Remedy: "lower gpus in placement, or run the recipe on a machine with more; CUDA_VISIBLE_DEVICES limits " +
				"the GPUs that recipe sees"}, true
	}
	for _, d := range p.Devices {
		if !slices.Contains(h.Devices, d) {
			return Finding{Verdict: Fail, Found: fmt.Sprintf("asks for GPU %s; this machine has GPU %s", d,
				strings.Join(h.Devices, ", ")),
				Remedy: "name one of these in placement { devices = … }, or write gpus = … and let recipe choose"}, true
		}
	}
	return Finding{Verdict: OK, Found: fmt.Sprintf("%s; this machine has %d", asks, len(h.Devices))}, true
}

const noGPURemedy = "run the recipe on a machine with NVIDIA GPUs; recipes/quickstart.hcl and recipes/addition.hcl " +
	"need none"

// text is a text attribute of a block's body, or of an object in it; empty when it has none or when it is not known
// yet.
func text(b *schema.Block, path ...string) string {
	v, _ := b.Value.UnmarkDeep()
	for _, name := range path {
		if v == cty.NilVal || !v.IsKnown() || v.IsNull() || !v.Type().IsObjectType() || !v.Type().HasAttribute(name) {
			return ""
		}
		v = v.GetAttr(name)
	}
	if !v.IsKnown() || v.IsNull() || v.Type() != cty.String {
		return ""
	}
	return v.AsString()
}

// scriptOf reports a missing script of a block; false when it has none, or the script exists.
func scriptOf(r *schema.Recipe, b *schema.Block) (Finding, bool) {
	script := text(b, "script")
	if script == "" {
		return Finding{}, false
	}
	path := within(within(r.Dir, text(b, "path")), script)
	if _, err := os.Stat(path); err != nil {
		return Finding{Verdict: Fail, Found: path + " cannot be read",
			Remedy: "correct script; it is relative to path, else to the recipe's folder"}, true
	}
	return Finding{}, false
}

// missing reports files and folders that a block names and that do not exist. A name that neither starts like a path
// nor ends like a file of data may be a name in a hub. Models of Python programs are checked by modelOf.
func missing(r *schema.Recipe, b *schema.Block, python bool) []Finding {
	names := []string{"tokenizer", "dataset", "path"}
	if !python {
		names = append(names, "model")
	}
	var found []Finding
	for _, name := range names {
		value := text(b, name)
		if !filepath.IsAbs(value) && !strings.HasPrefix(value, "./") && !strings.HasPrefix(value, "../") &&
			!(name == "dataset" && slices.Contains(dataEndings(), filepath.Ext(value))) {
			continue
		}
		if path := within(r.Dir, value); !exists(path) {
			found = append(found, Finding{Verdict: Fail, Found: path + " does not exist",
				Remedy: "correct " + name + ", or create it; a relative path is relative to the recipe's folder"})
		}
	}
	return found
}

// dataEndings are those of files of data; no name in a hub has them.
func dataEndings() []string { return []string{".jsonl", ".json", ".csv", ".parquet"} }

// within resolves a path relative to a folder; an empty path is the folder.
func within(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// modelOf reports whether a model is on this machine. It does not ask a hub.
func modelOf(m Machine, r *schema.Recipe, b *schema.Block, name string) Finding {
	if path := within(r.Dir, name); filepath.IsAbs(name) || strings.HasPrefix(name, ".") || exists(path) {
		if exists(path) {
			return Finding{Verdict: OK, Found: path}
		}
		return Finding{Verdict: Fail, Found: path + " does not exist",
			Remedy: "correct model: a folder with the model, or its name in the hub"}
	}
	lookup := func(name string) string { return variable(m, b, name) }
	folder := filepath.Join(hubCache(lookup), "models--"+strings.ReplaceAll(name, "/", "--"))
	if list, err := filepath.Glob(filepath.Join(folder, "snapshots", "*", "config.json")); err == nil && len(list) > 0 {
		return Finding{Verdict: OK, Found: name + " is in the cache, " + folder}
	}
	if by := offline(lookup); by != "" {
		return Finding{Verdict: Fail, Found: name + " is not in the cache " + filepath.Dir(folder) +
			", and " + by + " forbids downloads",
			Remedy: "download it where the hub can be reached (hf download " + name + "), or unset " + by}
	}
	return Finding{Verdict: Warn, Found: name + " is not in the cache " + filepath.Dir(folder) +
		": the start downloads it, if the hub can be reached",
		Remedy: "run hf download " + name + " first; a gated model needs HF_TOKEN"}
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

// Notes are the reasons why apply would fail on this machine. They are not errors: a plan may be made on another
// machine than the one that runs it, for example in continuous integration. Nothing is started to find them.
func Notes(m Machine, hardware sizing.Machine, r *schema.Recipe, packages Packages) []plan.Finding {
	var found []plan.Finding
	add := func(a addr.Block, summary, detail string) {
		found = append(found, plan.Finding{Severity: "info", Address: a, Summary: summary, Detail: detail})
	}
	for _, b := range r.Blocks {
		if f, wants := gpusOf(hardware, b); wants && hardware.NoGPU && !elsewhere(b) && b.Meta.External == nil {
			add(b.Addr, f.Found+": apply would fail here", "The plan is valid for a machine that has them.")
		}
		t, python := runtimeOf(m, r, b, packages)
		if a, ok := m.agentNamed(b); ok {
			own := agentPython(m, r, b, t, python)
			if _, err := findAgent(m, b, a, own.path); err != nil {
				f := agentMissing(err, filepath.Base(r.File), own)
				add(b.Addr, f.Found+": apply would fail here", f.Remedy)
			}
		}
		if f, ok := noSandbox(m, b); ok {
			add(b.Addr, f.Found+": apply would fail here", f.Remedy)
		}
		switch {
		case !python:
		case t.err != nil:
			add(b.Addr, "its Python is not on this machine: apply would fail here", t.err.Error())
		case t.makeable && len(t.packages.Needs) > 0:
			add(b.Addr, "its Python environment does not exist on this machine",
				fmt.Sprintf(
					"Run recipe init to create it. Without it %s is used, which must have %s; recipe doctor %s checks.",
					t.path, strings.Join(t.packages.Needs, ", "), filepath.Base(r.File)))
		}
	}
	return found
}
