package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/printable"
	"github.com/recipe-rl/recipe/engine/session"
	"github.com/recipe-rl/recipe/schema/parse"
)

// maxQuestion bounds what a person is asked to read, in bytes. A longer plan is not cut: what is approved is shown.
const maxQuestion = 64 << 10

// question is the text that a person approves. It holds everything that decides what an apply of a plan does: the
// values that the agent chose, the plan as recipe plan prints it, and the files that the plan names. Values and plan
// come from the saved plan. Digests are computed now: they show what would run, and another text shows that it changed.
func question(saved *session.Saved, shown *plan.Plan) (string, error) {
	var b strings.Builder
	line := func(format string, values ...any) { fmt.Fprintln(&b, printable.Text(fmt.Sprintf(format, values...))) }
	line("Apply this plan of %s?", saved.File)
	for _, name := range slices.Sorted(maps.Keys(saved.Variables)) {
		v := saved.Variables[name]
		value := string(v.Value)
		if v.Secret {
			value = "(sensitive)"
		}
		line("  var.%s = %s (%s)", name, value, v.Source)
	}
	for _, s := range saved.Settings {
		value := s.Value
		if s.Secret {
			value = "(sensitive)"
		}
		line("  --set %s = %s", s.At, value)
	}
	for _, target := range saved.Targets {
		line("  only %s and what it needs", target)
	}
	files, err := filesOf(saved, shown)
	if err != nil {
		return "", err
	}
	for _, f := range files {
		line("  %s", f)
	}
	var planned strings.Builder
	if err := view.Plan(&planned, view.Style{Width: 100}, shown); err != nil {
		return "", err
	}
	b.WriteString("\n" + printable.Text(planned.String()))
	if b.Len() > maxQuestion {
		return "", fmt.Errorf("the plan has %d bytes, more than can be shown to a person here (%d): let the person run "+
			"recipe apply in a terminal", b.Len(), maxQuestion)
	}
	return b.String(), nil
}

// filesOf lists the files that the blocks of a plan name, with path and digest, and the plugins that are not built in.
func filesOf(saved *session.Saved, shown *plan.Plan) ([]string, error) {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(saved.Sources)) {
		out = append(out, fmt.Sprintf("plugin %s runs %s", name, saved.Sources[name]))
	}
	folder, err := filepath.Abs(filepath.Dir(saved.File))
	if err != nil {
		return nil, fmt.Errorf("find the recipe's folder: %w", err)
	}
	for _, op := range shown.Operations {
		if op.Action == plan.Nothing || op.Action == plan.Stop {
			continue
		}
		for _, attribute := range slices.Sorted(maps.Keys(op.Config)) {
			var value any
			if json.Unmarshal(op.Config[attribute], &value) != nil {
				continue
			}
			for _, text := range texts(value) {
				path, _, _ := strings.Cut(text, ".py:") // FILE.py:FUNCTION
				if path != text {
					path += ".py"
				}
				if path == "" {
					continue
				}
				if !filepath.IsAbs(path) {
					path = filepath.Join(folder, path)
				}
				if digest := digestOfFile(path); digest != "" {
					out = append(out, fmt.Sprintf("file %s, named by %s of %s (%s)", path, attribute, op.Address, digest))
				}
			}
		}
	}
	return slices.Compact(out), nil
}

// texts are the strings in a value of JSON.
func texts(value any) (out []string) {
	switch v := value.(type) {
	case string:
		return []string{v}
	case []any:
		for _, e := range v {
			out = append(out, texts(e)...)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			out = append(out, texts(v[name])...)
		}
	}
	return out
}

// digestOfFile is the digest of a regular file as recipe trust shows it, of Python with the files that it imports, or
// why there is none; empty: no regular file.
func digestOfFile(path string) string {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	digest, err := host.DigestOf(path)
	if err != nil {
		return err.Error()
	}
	return digest
}

// allowedRecipe refuses what is no recipe of the folder in which recipe mcp was started: errors quote lines of a file.
func allowedRecipe(path string) error {
	if path == "" {
		return nil
	}
	refused := func(why string) error {
		return fmt.Errorf("recipe %q %s: name a recipe, *.hcl, in the folder where recipe mcp was started or below it",
			path, why)
	}
	here, err := os.Getwd()
	if err == nil {
		here, err = filepath.EvalSymlinks(here)
	}
	if err != nil {
		return fmt.Errorf("find the folder of recipe mcp: %w", err)
	}
	real, err := filepath.Abs(path)
	if err == nil {
		real, err = filepath.EvalSymlinks(real)
	}
	if err != nil {
		return refused("is not there")
	}
	if inside, err := filepath.Rel(here, real); err != nil || !filepath.IsLocal(inside) {
		return refused("is not in " + here)
	}
	info, err := os.Stat(real)
	switch {
	case err != nil:
		return refused("is not there")
	case info.Mode().Type()&^fs.ModeDir != 0, !info.IsDir() && !parse.IsRecipeFile(filepath.Base(real)):
		return refused("is no recipe")
	}
	return nil
}

// allowedValue refuses a value of an attribute that calls a function: file() would read what the agent may not see.
func allowedValue(at, value string) error {
	expr, diags := parse.Expression(at, []byte(value))
	if diags.HasErrors() {
		return nil // it is text, or refused by the plan
	}
	called := ""
	_ = hclsyntax.VisitAll(expr, func(n hclsyntax.Node) hcl.Diagnostics {
		if call, ok := n.(*hclsyntax.FunctionCallExpr); ok {
			called = call.Name
		}
		return nil
	})
	if called == "" {
		return nil
	}
	return fmt.Errorf("the value of %s calls %s(); the tool plan takes values only: write the value itself, or the "+
		"expression into the recipe", at, called)
}
