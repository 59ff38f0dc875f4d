package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.lsp.dev/jsonrpc2"
	"go.lsp.dev/protocol"
	"go.lsp.dev/uri"

	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/schema/parse"
)

// editor is a client of `recipe lsp` in a process of its own.
type editor struct {
	protocol.UnimplementedClient
	t        *testing.T
	ctx      context.Context
	dir      string
	server   protocol.Server
	messages chan *protocol.PublishDiagnosticsParams
}

func (e *editor) PublishDiagnostics(_ context.Context, p *protocol.PublishDiagnosticsParams) error {
	e.messages <- p
	return nil
}

// pipes are the standard input and output of a process.
type pipes struct {
	io.ReadCloser
	io.WriteCloser
}

func (p pipes) Close() error { return errors.Join(p.WriteCloser.Close(), p.ReadCloser.Close()) }

// diagnosed is how long an editor waits for the diagnostics of one file, whose plugins are started.
const diagnosed = time.Minute

// newEditor starts the server in a folder. When the test ends it says goodbye, and the server must exit with 0.
func newEditor(t *testing.T, dir string) *editor {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*diagnosed)
	cmd := exec.CommandContext(ctx, "recipe", "lsp", "--stdio")
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	e := &editor{t: t, ctx: ctx, dir: dir, messages: make(chan *protocol.PublishDiagnosticsParams, 100)}
	_, _, e.server = protocol.NewClient(ctx, e, jsonrpc2.NewStream(pipes{out, in}))
	p := &protocol.InitializeParams{}
	p.WorkspaceFolders = protocol.NewNullable([]protocol.WorkspaceFolder{{URI: uri.File(dir), Name: "recipes"}})
	if _, err := e.server.Initialize(ctx, p); err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	t.Cleanup(func() {
		defer cancel()
		if err := e.server.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := e.server.Exit(ctx); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil || stderr.Len() > 0 {
			t.Errorf("%v: %s", err, stderr.String())
		}
	})
	return e
}

func (e *editor) open(path string) uri.URI {
	e.t.Helper()
	src, err := os.ReadFile(path)
	if err != nil {
		e.t.Fatal(err)
	}
	u := uri.File(path)
	if err := e.server.DidOpen(e.ctx, &protocol.DidOpenTextDocumentParams{TextDocument: protocol.TextDocumentItem{
		URI: u, LanguageID: "hcl", Version: 1, Text: string(src)}}); err != nil {
		e.t.Fatal(err)
	}
	return u
}

// diagnostics waits for those of a file, written as validatedLines does.
func (e *editor) diagnostics(u uri.URI) []string {
	e.t.Helper()
	over := time.After(diagnosed)
	for {
		select {
		case m := <-e.messages:
			if m.URI != u {
				continue
			}
			var out []string
			for _, d := range m.Diagnostics {
				out = append(out, fmt.Sprintf("%d:%d-%d:%d %v %s", d.Range.Start.Line+1, d.Range.Start.Character+1,
					d.Range.End.Line+1, d.Range.End.Character+1, d.Severity, d.Message))
			}
			slices.Sort(out)
			return out
		case <-over:
			e.t.Fatalf("no diagnostics of %s within %v", u, diagnosed)
		}
	}
}

// validated is what `recipe validate` says of a recipe in its folder.
func validated(t *testing.T, path string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "recipe", "validate", "--json", filepath.Base(path))
	cmd.Dir = filepath.Dir(path)
	raw, err := cmd.Output()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	var report diagnostic.Report
	if err := json.Unmarshal(raw, &report); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	var out []string
	for _, d := range report.Diagnostics {
		severity := protocol.DiagnosticSeverityError
		if d.Severity == "warning" {
			severity = protocol.DiagnosticSeverityWarning
		}
		r := d.Range
		if r == nil {
			r = &diagnostic.Range{Start: diagnostic.Pos{Line: 1, Column: 1}, End: diagnostic.Pos{Line: 1, Column: 1}}
		}
		out = append(out, fmt.Sprintf("%d:%d-%d:%d %v %s\n%s", r.Start.Line, r.Start.Column, r.End.Line, r.End.Column,
			severity, d.Summary, d.Detail))
	}
	slices.Sort(out)
	return out
}

// TestEditorSeesWhatValidateSays opens the recipes of this repository, and broken ones, with the real plugins.
func TestEditorSeesWhatValidateSays(t *testing.T) {
	t.Parallel()
	recipes, err := filepath.Abs(filepath.Join(repository, "recipes"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(recipes)); err != nil {
		t.Fatal(err)
	}
	quickstart, err := os.ReadFile(filepath.Join(dir, "quickstart.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	for name, more := range map[string]string{
		"unknown.hcl":   "trainer \"gpro\" \"x\" {\n}\n",
		"twice.hcl":     "variable \"a\" {}\nvariable \"a\" {}\n",
		"unclosed.hcl":  "output \"x\" {\n  value = [1,\n",
		"undefined.hcl": "output \"x\" {\n  value = inference.tiny.polcy.base_url\n}\n",
		"cycle.hcl":     "locals {\n  a = local.b\n  b = local.a\n}\n",
		"plugin.hcl":    "trainer \"grpo\" \"x\" {\n  stepz = 1\n  model = 3\n  lora {\n  }\n}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), append(slices.Clone(quickstart), more...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e := newEditor(t, dir)
	files, err := filepath.Glob(filepath.Join(dir, "*.hcl"))
	files = slices.DeleteFunc(files, func(path string) bool { return !parse.IsRecipeFile(filepath.Base(path)) })
	if err != nil || len(files) < 20 {
		t.Fatal(files, err)
	}
	broken := 0
	for _, path := range files {
		want := validated(t, path)
		for i, text := range want { // an editor shows paths as they are from its folder
			want[i] = strings.ReplaceAll(text, dir+string(filepath.Separator), "")
		}
		if len(want) > 0 {
			broken++
		}
		if got := e.diagnostics(e.open(path)); !slices.Equal(got, want) {
			t.Errorf("%s: got\n%s\nwant\n%s", filepath.Base(path), strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	if broken < 6 {
		t.Errorf("only %d recipes have diagnostics", broken)
	}
}
