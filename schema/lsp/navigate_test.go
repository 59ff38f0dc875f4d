package lsp_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.lsp.dev/protocol"
	"go.lsp.dev/uri"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/lsp"
	"github.com/recipe-rl/recipe/schema/parse"
)

// evalModule is a module with a variable and an output; loopWithModule calls it.
const evalModule = `variable "steps" {
  type = number
}

output "url" {
  value = "x${var.steps}"
}
`

const caller = `module "eval" {
  source = "./eval"
  steps  = 1
}

output "url" {
  value = module.eval.url
}
`

// places writes locations as FILE:LINE:COLUMN, from 1, sorted.
func places(dir string, list []protocol.Location) []string {
	var out []string
	for _, l := range list {
		name, _ := filepath.Rel(dir, l.URI.FsPath())
		out = append(out, fmt.Sprintf("%s:%d:%d", name, l.Range.Start.Line+1, l.Range.Start.Character+1))
	}
	slices.Sort(out)
	return out
}

func TestDefinitionAndReferences(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		src        string
		definition []string
		references []string // with the declaration
	}{
		"variable": {strings.Replace(loop, "model = var.model", "model = var.mo|del", 1), []string{"a.hcl:1:11"},
			[]string{"a.hcl:12:15", "a.hcl:1:11", "a.hcl:20:22"}},
		"declaration": {strings.Replace(loop, `variable "model"`, `variable "mo|del"`, 1), []string{"a.hcl:1:11"}, []string{"a.hcl:12:15", "a.hcl:1:11", "a.hcl:20:22"}},
		"local": {strings.Replace(loop, "local.steps", "local.steps|", 1), []string{"a.hcl:8:3"},
			[]string{"a.hcl:22:24", "a.hcl:8:3"}},
		"block": {strings.Replace(loop, "[inference.vllm.policy]", "[inference.vl|lm.policy]", 1), []string{"a.hcl:11:19"},
			[]string{"a.hcl:11:19", "a.hcl:16:30", "a.hcl:27:31"}},
		"attribute of a block": {loop + "output \"x\" {\n  value = trainer.grpo.policy.st|eps\n}\n", []string{"a.hcl:22:3"},
			nil},
		"an output of a block": {loop + "output \"x\" {\n  value = trainer.grpo.policy.check|point\n}\n", nil, nil},
		"output of a module": {strings.Replace(caller, "eval.url", "eval.u|rl", 1), []string{"eval/main.hcl:5:9"},
			[]string{"a.hcl:7:23", "eval/main.hcl:5:9"}},
		"argument of a module": {strings.Replace(caller, "steps  =", "st|eps  =", 1), []string{"eval/main.hcl:1:11"},
			[]string{"a.hcl:3:3", "eval/main.hcl:1:11", "eval/main.hcl:6:19"}},
		"module": {strings.Replace(caller, "module.eval", "module.ev|al", 1), []string{"a.hcl:1:9"},
			[]string{"a.hcl:1:9", "a.hcl:7:18"}},
		"source":       {strings.Replace(caller, "./eval", "./ev|al", 1), []string{"eval/main.hcl:1:1"}, nil},
		"bound by for": {"locals {\n  a = [for trainer in [] : trainer.g|rpo.policy]\n}\n" + loop, nil, nil},
		"in a template": {loop + "output \"x\" {\n  value = \"${upper(\"${local.st|eps}\")}\"\n}\n",
			[]string{"a.hcl:8:3"}, []string{"a.hcl:22:24", "a.hcl:30:29", "a.hcl:8:3"}},
		"with an index": {loop + "output \"x\" {\n  value = trainer.grpo.po|licy[local.steps].checkpoint\n}\n",
			[]string{"a.hcl:19:17"}, []string{"a.hcl:19:17", "a.hcl:26:28", "a.hcl:30:24"}},
		"in an index": {loop + "output \"x\" {\n  value = trainer.grpo.policy[local.st|eps].checkpoint\n}\n",
			[]string{"a.hcl:8:3"}, []string{"a.hcl:22:24", "a.hcl:30:37", "a.hcl:8:3"}},
		"does not parse": {loop + "output \"x\" {\n  value = [local.st|eps\n", []string{"a.hcl:8:3"},
			[]string{"a.hcl:22:24", "a.hcl:30:18", "a.hcl:8:3"}},
		"nothing": {loop + "|", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, write(t, map[string]string{"a.hcl": c.src, "eval/main.hcl": evalModule}), lsp.Options{})
			at := s.at("a.hcl", c.src)
			got, err := s.server.Definition(s.ctx, &protocol.DefinitionParams{TextDocumentPositionParams: at})
			if err != nil {
				t.Fatal(err)
			}
			list, _ := got.(protocol.LocationSlice)
			if have := places(s.dir, list); !slices.Equal(have, c.definition) {
				t.Errorf("definition: got %q, want %q", have, c.definition)
			}
			p := &protocol.ReferenceParams{TextDocumentPositionParams: at}
			p.Context.IncludeDeclaration = true
			references, err := s.server.References(s.ctx, p)
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(c.references)
			if have := places(s.dir, references); !slices.Equal(have, c.references) {
				t.Errorf("references: got %q, want %q", have, c.references)
			}
		})
	}
}

// TestRename renames and loads the result: it must have no other diagnostics than before, and no trace of the old name.
func TestRename(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		src, to string
		gone    string // from all files
		refused string
	}{
		"variable": {strings.Replace(loop, "model = var.model", "model = var.mo|del", 1), "weights", "var.model",
			""},
		"local":              {strings.Replace(loop, "local.steps", "local.st|eps", 1), "updates", "local.steps", ""},
		"block":              {strings.Replace(loop, `"vllm" "policy"`, `"vllm" "pol|icy"`, 1), "server", "vllm.policy", ""},
		"module":             {strings.Replace(caller, `"eval"`, `"ev|al"`, 1), "judge", "module.eval", ""},
		"output of a module": {strings.Replace(caller, "eval.url", "eval.u|rl", 1), "address", "eval.url", ""},
		"argument":           {strings.Replace(caller, "steps  =", "st|eps  =", 1), "updates", "steps", ""},
		"no symbol": {strings.Replace(loop, "model = var.model", "mo|del = var.model", 1), "x", "",
			"Only the names of"},
		"plugin": {strings.Replace(loop, `"vllm"`, `"vl|lm"`, 1), "x", "", "Only the names of"},
		"no name": {strings.Replace(loop, "local.steps", "local.st|eps", 1), "a b", "",
			"cannot be used in a reference"},
		"taken": {strings.Replace(loop, "steps = 10 * 2", "steps = 10 * 2\n  st|art = 1", 1), "steps", "",
			"already local.steps"},
		"reserved":   {strings.Replace(loop, `variable "model"`, `variable "mod|el"`, 1), "count", "", "argument of every module"},
		"undeclared": {loop + "output \"x\" {\n  value = local.oth|er\n}\n", "x", "", "not declared"},
		"does not parse": {strings.Replace(loop, "local.steps", "local.st|eps", 1) + "locals {", "x", "",
			"syntax errors"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := write(t, map[string]string{"a.hcl": c.src, "eval/main.hcl": evalModule})
			s := start(t, dir, lsp.Options{})
			at := s.at("a.hcl", c.src)
			edit, err := s.server.Rename(s.ctx, &protocol.RenameParams{TextDocumentPositionParams: at, NewName: c.to})
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Fatalf("got %v, want %q", err, c.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			before := s.diagnostics("a.hcl")
			files := slices.Sorted(maps.Keys(edit.Changes))
			slices.Reverse(files) // a.hcl last: its diagnostics are those of all files renamed
			for _, u := range files {
				edits, path := edit.Changes[u], u.FsPath()
				src, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				renamed := apply(t, string(src), edits)
				if strings.Contains(renamed, c.gone) || !strings.Contains(renamed, c.to) {
					t.Errorf("%s:\n%s", path, renamed)
				}
				if err := os.WriteFile(path, []byte(renamed), 0o600); err != nil {
					t.Fatal(err)
				}
				if u == s.uri("a.hcl") {
					s.replace("a.hcl", renamed)
				} else {
					s.open("eval/main.hcl", renamed)
				}
			}
			if edit.Changes[s.uri("a.hcl")] == nil {
				s.replace("a.hcl", strings.Replace(c.src, "|", "", 1))
			}
			if after := s.diagnostics("a.hcl"); len(after) != len(before) {
				t.Errorf("before %v\nafter %v", before, after)
			}
		})
	}
}

// TestRenameInAModule starts at the declaration in the module: the callers in the workspace are renamed too.
func TestRenameInAModule(t *testing.T) {
	t.Parallel()
	s := start(t, write(t, map[string]string{"a.hcl": caller, "eval/main.hcl": evalModule}), lsp.Options{})
	at := s.at("eval/main.hcl", strings.Replace(evalModule, `"steps"`, `"st|eps"`, 1))
	edit, err := s.server.Rename(s.ctx, &protocol.RenameParams{TextDocumentPositionParams: at, NewName: "updates"})
	if err != nil {
		t.Fatal(err)
	}
	got := map[uri.URI]int{}
	for u, edits := range edit.Changes {
		got[u] = len(edits)
	}
	if len(got) != 2 || got[s.uri("a.hcl")] != 1 || got[s.uri("eval/main.hcl")] != 2 {
		t.Errorf("%v", got)
	}
}

// packages are plugins with a module from a package, in a folder that is not of the workspace.
type packages struct {
	fakes
	folder string
}

func (p packages) Module(_ string, q parse.Requirement) (string, error) {
	if q.Name != "eval" || q.Source != "oci://registry.example.com/eval" {
		return "", fmt.Errorf("there is no module %s at %s", q.Name, q.Source)
	}
	return p.folder, nil
}

// TestModulesFromPackages: variables and outputs of a module that the lock names are checked, offered, explained and
// found, and cannot be renamed.
func TestModulesFromPackages(t *testing.T) {
	t.Parallel()
	const source = `"oci://registry.example.com/eval"`
	folder := filepath.Join(write(t, map[string]string{"eval/main.hcl": evalModule}), "eval")
	plugins := packages{fakePlugins(t), folder}
	s := start(t, write(t, nil), lsp.Options{Plugins: func() (schema.Plugins, error) { return plugins, nil }})
	text := strings.Replace(caller, `"./eval"`, source, 1)
	s.open("a.hcl", text)
	if got := s.diagnostics("a.hcl"); len(got) > 0 {
		t.Fatalf("%v", got)
	}

	at := s.at("a.hcl", strings.Replace(text, "steps  =", "st|eps  =", 1))
	hover, err := s.server.Hover(s.ctx, &protocol.HoverParams{TextDocumentPositionParams: at})
	if err != nil || hover == nil || !strings.Contains(hover.Contents.(*protocol.MarkupContent).Value, "`steps`: number") {
		t.Errorf("hover: %+v, %v", hover, err)
	}
	found, err := s.server.Definition(s.ctx, &protocol.DefinitionParams{TextDocumentPositionParams: at})
	list, _ := found.(protocol.LocationSlice)
	if err != nil || !slices.Equal(places(folder, list), []string{"main.hcl:1:11"}) {
		t.Errorf("definition: %v, %v", found, err)
	}
	if edit, err := s.server.Rename(s.ctx, &protocol.RenameParams{TextDocumentPositionParams: at,
		NewName: "rounds"}); err == nil || !strings.Contains(err.Error(), "from a package") {
		t.Errorf("rename: %+v, %v", edit, err)
	}
	labels, _ := s.complete("a.hcl", strings.Replace(text, "  steps  = 1\n", "  |\n", 1))
	if !slices.Contains(labels, "steps") {
		t.Errorf("arguments: %q", labels)
	}
	labels, _ = s.complete("a.hcl", strings.Replace(text, "eval.url", "eval.|", 1))
	if !slices.Equal(labels, []string{"url"}) {
		t.Errorf("outputs: %q", labels)
	}
	s.replace("a.hcl", strings.Replace(text, "steps  =", "stepz  =", 1))
	if got := summaries(s.diagnostics("a.hcl")); !strings.Contains(got, "stepz") {
		t.Errorf("an argument that the module does not have: %s", got)
	}
	s.replace("a.hcl", strings.Replace(text, "/eval", "/other", 1))
	if got := summaries(s.diagnostics("a.hcl")); !strings.Contains(got, "Module not usable") {
		t.Errorf("a module that is not locked: %s", got)
	}
	if labels, _ = s.complete("a.hcl", strings.Replace(strings.Replace(text, "/eval", "/other", 1), "eval.url", "eval.|",
		1)); len(labels) > 0 {
		t.Errorf("outputs of a module that is not locked: %q", labels)
	}
}
