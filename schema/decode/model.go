package decode

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Files of which a folder with a model has at least one each.
var (
	weightFiles    = []string{"*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf"}
	tokenizerFiles = []string{"tokenizer.json", "tokenizer_config.json", "tokenizer.model", "tekken.json", "vocab.json",
		"vocab.txt", "spiece.model", "*.tiktoken", "sentencepiece*.model"}
)

// maxIndex bounds the list of a model's weight files.
const maxIndex = 16 << 20

// IsModelPath reports whether a model is a folder of a machine; else it is a name in a hub.
func IsModelPath(model string) bool {
	return strings.HasPrefix(model, ".") || strings.HasPrefix(model, "/") || strings.HasPrefix(model, "~")
}

// model reports a path in an attribute of FormatModel or FormatModelFile where no model is. A model of another machine
// is not looked at.
func (d *Decoder) model(a *spec.Attribute, v cty.Value, attr *hclsyntax.Attribute, body *hclsyntax.Body,
	where string) {
	file := a.Format == spec.FormatModelFile
	if !file && a.Format != spec.FormatModel || d.Running || v.IsMarked() || v.IsNull() || !v.IsKnown() {
		return
	}
	name, dir := v.AsString(), d.Shared.code.files.Dir
	if name == "" || len(name) > 4096 || strings.Contains(name, "\x00") || placed(body) || hasBlock(body, "external") {
		return
	}
	if file && a.Default != cty.NilVal && v.RawEquals(a.Default) { // built in
		return
	}
	if !file && !IsModelPath(name) {
		info, err := os.Stat(filepath.Join(dir, name))
		if err == nil && info.IsDir() && d.Target.Kind == kind.Inference {
			d.report(diagnostic.Warning(attr.Expr.Range(), "Name of a hub", fmt.Sprintf("%q in %s: %s is taken for the "+
				"name of a model in the hub. A folder of that name is beside the recipe; for that folder write \"./%s\".",
				a.Name, where, name, name)))
		}
		return
	}
	full := resolveModel(name, dir)
	info, err := os.Stat(full)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		shown := name
		if strings.HasPrefix(name, "~") {
			shown = full
		}
		diag := d.notThere(a.Name, shown, attr.Expr.Range(), where, func(path string) bool {
			info, err := os.Stat(filepath.Join(path, "config.json"))
			return file || err == nil && info.Mode().IsRegular()
		})
		diag.Summary = "Model not found"
		if !file {
			diag.Detail += " A model is a folder with config.json, weights and tokenizer, or a name in the hub."
		}
		if filepath.IsAbs(shown) { // it may be on the machine of the block
			diag.Severity = hcl.DiagWarning
		}
		d.report(diag)
	case err != nil:
		d.report(diagnostic.Problem(attr.Expr.Range(), "Model not readable", fmt.Sprintf("%q in %s: %s.", a.Name, where,
			diagnostic.UpperFirst(err.Error()))))
	case file && info.IsDir():
		d.report(diagnostic.Problem(attr.Expr.Range(), "Not a model", fmt.Sprintf("%q in %s: %s is a folder; expected the "+
			"file of a checkpoint. Name the file in it.", a.Name, where, name)))
	case file:
	case !info.IsDir():
		d.report(diagnostic.Problem(attr.Expr.Range(), "Not a model", fmt.Sprintf("%q in %s: %s is a file; expected a "+
			"folder with config.json, weights and tokenizer. Name the folder that it is in.", a.Name, where, name)))
	default:
		d.incomplete(a, full, name, attr.Expr.Range(), body, where)
	}
}

// incomplete reports what a model's folder lacks.
func (d *Decoder) incomplete(a *spec.Attribute, full, name string, at hcl.Range, body *hclsyntax.Body,
	where string) {
	entries, err := os.ReadDir(full)
	if err != nil {
		d.report(diagnostic.Problem(at, "Model not readable", fmt.Sprintf("%q in %s: %s.", a.Name, where,
			diagnostic.UpperFirst(err.Error()))))
		return
	}
	names := make([]string, 0, min(len(entries), maxNames))
	for _, e := range entries[:min(len(entries), maxNames)] {
		names = append(names, e.Name())
	}
	has := func(patterns ...string) bool {
		return slices.ContainsFunc(names, func(n string) bool {
			return slices.ContainsFunc(patterns, func(p string) bool { ok, _ := filepath.Match(p, n); return ok })
		})
	}
	var lacks []string
	if !has("config.json") {
		lacks = append(lacks, "config.json")
	}
	if shards := missingShards(full, names); len(shards) > 0 {
		lacks = append(lacks, fmt.Sprintf("weights: %s, which its index lists", diagnostic.Some(shards)))
	} else if !has(weightFiles...) && !has("*.index.json") && body.Attributes["extra_args"] == nil { // --load-format
		lacks = append(lacks, "weights ("+strings.Join(weightFiles[:2], ", ")+")")
	}
	tokenizer := has(tokenizerFiles...) || slices.ContainsFunc([]string{"tokenizer", "tokenizer_path"},
		func(n string) bool { return body.Attributes[n] != nil })
	if !tokenizer {
		lacks = append(lacks, "a tokenizer ("+strings.Join(tokenizerFiles[:2], ", ")+")")
	}
	if len(lacks) > 0 {
		diag := diagnostic.Problem(at, "Incomplete model", fmt.Sprintf("%q in %s: the folder %s lacks %s.%s", a.Name, where,
			name, strings.Join(lacks, " and "), d.incompleteRemedy(full, names)))
		if len(lacks) == 1 && !tokenizer { // the trainer may get tokens, and the server text in ids
			diag.Severity = hcl.DiagWarning
		}
		d.report(diag)
		return
	}
	if pointer := lfsPointer(full, names); pointer != "" {
		d.report(diagnostic.Problem(at, "Incomplete model", fmt.Sprintf("%q in %s: %s in the folder %s is a pointer of Git "+
			"LFS and no weights. Run git lfs pull there.", a.Name, where, pointer, name)))
	}
}

// incompleteRemedy names a folder in it that is a model, or how to get one.
func (d *Decoder) incompleteRemedy(full string, names []string) string {
	for _, n := range names[:min(len(names), diagnostic.MaxListed*8)] {
		if info, err := os.Stat(filepath.Join(full, n, "config.json")); err == nil && info.Mode().IsRegular() {
			return fmt.Sprintf(" The folder %s in it has a config.json; name that one.", n)
		}
	}
	return " Name the folder that save_pretrained or hf download --local-dir wrote, or run it again."
}

// missingShards are the files of weights that the index of a folder lists and the folder lacks.
func missingShards(full string, names []string) (missing []string) {
	for _, index := range names {
		if !strings.HasSuffix(index, ".safetensors.index.json") {
			continue
		}
		data, err := regular.FollowFile(filepath.Join(full, index), maxIndex)
		if err != nil {
			continue
		}
		var of struct {
			Map map[string]string `json:"weight_map"`
		}
		if json.Unmarshal(data, &of) != nil {
			continue
		}
		for _, file := range of.Map {
			if !slices.Contains(names, file) && !slices.Contains(missing, file) && len(missing) <= maxNames {
				missing = append(missing, file)
			}
		}
	}
	slices.Sort(missing)
	return missing
}

// lfsPointer is a file of weights that only says where they are.
func lfsPointer(full string, names []string) string {
	const begins = "version https://git-lfs"
	for _, n := range names {
		if !strings.HasSuffix(n, ".safetensors") && !strings.HasSuffix(n, ".bin") {
			continue
		}
		path := filepath.Join(full, n)
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || info.Size() > 1024 {
			continue
		}
		f, err := os.Open(path) //nolint:gosec // a model that the recipe names
		if err != nil {
			continue
		}
		head := make([]byte, len(begins))
		_, err = io.ReadFull(f, head)
		_ = f.Close()
		if err == nil && string(head) == begins {
			return n
		}
	}
	return ""
}

// resolveModel is the folder of a model's path.
func resolveModel(name, dir string) string {
	switch {
	case strings.HasPrefix(name, "~/"):
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, name[2:])
		}
		return name
	case filepath.IsAbs(name):
		return filepath.Clean(name)
	}
	return filepath.Join(dir, name)
}

// placed reports whether a block may run on another machine.
func placed(body *hclsyntax.Body) bool {
	return body.Attributes["placement"] != nil || hasBlock(body, "placement")
}
