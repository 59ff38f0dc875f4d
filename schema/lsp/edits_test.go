package lsp_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.lsp.dev/jsonrpc2"
	"go.lsp.dev/protocol"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/lsp"
	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// texts of diagnostics, one a line.
func summaries(list []protocol.Diagnostic) string {
	var out strings.Builder
	for _, d := range list {
		fmt.Fprintf(&out, "%d: %s\n", d.Range.Start.Line+1, d.Message)
	}
	return out.String()
}

func TestDiagnosticsFollowTheText(t *testing.T) {
	t.Parallel()
	s := start(t, write(t, nil), lsp.Options{})
	s.open("a.hcl", loop)
	if got := s.diagnostics("a.hcl"); len(got) != 0 {
		t.Fatal(summaries(got))
	}
	// "polícy𐐀" before the mistake: places are in UTF-16 code units.
	s.change("a.hcl", &protocol.TextDocumentContentChangePartial{Text: "/* polícy𐐀 */ ",
		Range: protocol.Range{Start: protocol.Position{Line: 19, Character: 2}, End: protocol.Position{Line: 19,
			Character: 2}}},
		&protocol.TextDocumentContentChangePartial{Text: "modul", Range: protocol.Range{
			Start: protocol.Position{Line: 19, Character: 17}, End: protocol.Position{Line: 19, Character: 22}}})
	got := s.diagnostics("a.hcl")
	if len(got) != 2 || !strings.Contains(summaries(got), `There is no attribute "modul"`) {
		t.Fatal(summaries(got))
	}
	for _, d := range got {
		if strings.Contains(fmt.Sprint(d.Message), "modul") && d.Range != (protocol.Range{
			Start: protocol.Position{Line: 19, Character: 17}, End: protocol.Position{Line: 19, Character: 22}}) {
			t.Errorf("%+v", d.Range)
		}
	}
	s.replace("a.hcl", loop)
	if got := s.diagnostics("a.hcl"); len(got) != 0 {
		t.Fatal(summaries(got))
	}
}

// TestUnsavedModules: files that are open count as they are in the editor, in the recipes that call them too.
func TestUnsavedModules(t *testing.T) {
	t.Parallel()
	s := start(t, write(t, map[string]string{"a.hcl": caller, "eval/main.hcl": evalModule}), lsp.Options{})
	s.open("a.hcl", caller)
	if got := s.diagnostics("a.hcl"); len(got) != 0 {
		t.Fatal(summaries(got))
	}
	s.open("eval/main.hcl", evalModule)
	if got := s.diagnostics("eval/main.hcl"); len(got) != 0 { // its variable has no default; the caller sets it
		t.Fatal(summaries(got))
	}
	s.replace("eval/main.hcl", strings.Replace(evalModule, `output "url"`, `output "address"`, 1))
	if got := summaries(s.diagnostics("a.hcl")); !strings.Contains(got, `The module "eval" has no output "url"`) {
		t.Fatal(got)
	}
	s.replace("eval/main.hcl", strings.Replace(evalModule, "var.steps", "var.other", 1))
	if got := summaries(s.diagnostics("eval/main.hcl")); !strings.Contains(got, "There is no variable \"other\"") {
		t.Fatal(got)
	}
	// Closed without saving: the disk counts again.
	if err := s.server.DidClose(s.ctx,
		&protocol.DidCloseTextDocumentParams{TextDocument: s.id("eval/main.hcl")}); err != nil {
		t.Fatal(err)
	}
	for m := range s.messages {
		if m.URI == s.uri("eval/main.hcl") {
			if len(m.Diagnostics) != 0 {
				t.Error(summaries(m.Diagnostics))
			}
			break
		}
	}
}

func TestOutdatedVersionsAreIgnored(t *testing.T) {
	t.Parallel()
	s := start(t, write(t, nil), lsp.Options{})
	s.open("a.hcl", loop)
	s.versions["a.hcl"] = 8
	s.replace("a.hcl", loop+"locals {") // version 9
	if got := s.diagnostics("a.hcl"); len(got) == 0 {
		t.Fatal("no diagnostics")
	}
	s.versions["a.hcl"] = 2
	s.replace("a.hcl", loop) // version 3
	got, err := s.server.Formatting(s.ctx, &protocol.DocumentFormattingParams{TextDocument: s.id("a.hcl")})
	if err != nil || len(got) != 0 {
		t.Errorf("formatted the old version: %v %v", got, err)
	}
	hover, err := s.server.Hover(s.ctx,
		&protocol.HoverParams{TextDocumentPositionParams: protocol.TextDocumentPositionParams{
			TextDocument: s.id("a.hcl"), Position: protocol.Position{Line: uint32(strings.Count(loop, "\n")), Character: 2}}})
	if err != nil || hover == nil {
		t.Errorf("the newest version is gone: %v %v", hover, err)
	}
}

func TestQuickFixes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string][2]string{
		"attribute": {"  steps        =", "  stepz        ="},
		"variable":  {"model        = var.model", "model        = var.modul"},
		"local":     {"local.steps", "local.stpes"},
		"block":     {"trainer.grpo.policy", "trainer.grpo.polcy"},
		"plugin":    {`inference "vllm"`, `inference "vlm"`},
		"keyword":   {"sync \"weights\"", "synk \"weights\""},
		"function":  {"steps = 10 * 2", "steps = ma(10, 2)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, write(t, nil), lsp.Options{})
			src := strings.Replace(loop, c[0], c[1], 1)
			if src == loop {
				t.Fatal("nothing is wrong")
			}
			s.open("a.hcl", src)
			before := s.diagnostics("a.hcl")
			actions, err := s.server.CodeAction(s.ctx, &protocol.CodeActionParams{TextDocument: s.id("a.hcl"),
				Range: protocol.Range{End: protocol.Position{Line: 100}}, Context: protocol.CodeActionContext{}})
			if err != nil || len(actions) == 0 {
				t.Fatalf("%v %v: %s", actions, err, summaries(before))
			}
			s.replace("a.hcl", apply(t, src, actions[0].(*protocol.CodeAction).Edit.Changes[s.uri("a.hcl")]))
			if after := s.diagnostics("a.hcl"); len(after) >= len(before) {
				t.Errorf("before:\n%safter:\n%s", summaries(before), summaries(after))
			}
		})
	}
}

func TestFormatting(t *testing.T) {
	t.Parallel()
	for name, src := range map[string]string{
		"done": loop, "spaces": strings.ReplaceAll(loop, "  =", "="), "indentation": strings.ReplaceAll(loop, "\n  ",
			"\n\t\t"),
		"no newline at the end": "a=1", "empty": "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, write(t, nil), lsp.Options{})
			s.open("a.hcl", src)
			edits, err := s.server.Formatting(s.ctx, &protocol.DocumentFormattingParams{TextDocument: s.id("a.hcl")})
			if err != nil {
				t.Fatal(err)
			}
			if got, want := apply(t, src, edits), string(parse.Format([]byte(src))); got != want {
				t.Errorf("got\n%q\nwant\n%q", got, want)
			}
		})
	}
	s := start(t, write(t, nil), lsp.Options{})
	s.open("a.hcl", "locals {\na=[\n}\n")
	if edits, err := s.server.Formatting(s.ctx,
		&protocol.DocumentFormattingParams{TextDocument: s.id("a.hcl")}); err != nil || len(edits) > 0 {
		t.Errorf("a file that does not parse: %v %v", edits, err)
	}
}

func TestSymbolsAndTokens(t *testing.T) {
	t.Parallel()
	s := start(t, write(t, nil), lsp.Options{})
	src := loop + "# é𐐀\n/* two\nlines */\nlocals {\n  \"x"
	s.open("a.hcl", src)
	got, err := s.server.DocumentSymbol(s.ctx, &protocol.DocumentSymbolParams{TextDocument: s.id("a.hcl")})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, symbol := range got.(protocol.DocumentSymbolSlice) {
		names = append(names, symbol.Name)
		for _, child := range symbol.Children {
			names = append(names, "> "+child.Name)
		}
	}
	const want = "variable model, locals, > steps, inference vllm policy, environment atropos math, " +
		"trainer grpo policy, sync weights policy, locals"
	if have := strings.Join(names, ", "); have != want {
		t.Errorf("got %s", have)
	}
	tokens, err := s.server.SemanticTokensFull(s.ctx, &protocol.SemanticTokensParams{TextDocument: s.id("a.hcl")})
	if err != nil || len(tokens.Data)%5 != 0 {
		t.Fatal(tokens, err)
	}
	lines := strings.Split(src, "\n")
	types := []string{"keyword", "class", "variable", "property", "function", "namespace", "string", "number", "comment",
		"operator"}
	var read []string
	line, column := 0, 0
	for i := 0; i < len(tokens.Data); i += 5 {
		if tokens.Data[i] > 0 {
			line, column = line+int(tokens.Data[i]), 0
		}
		column += int(tokens.Data[i+1])
		text := lines[line]
		if strings.Contains(text, "𐐀") {
			text = "# é??" // in UTF-16 code units, two
			read = append(read, fmt.Sprintf("%d code units", tokens.Data[i+2]))
			continue
		}
		read = append(read, text[column:column+int(tokens.Data[i+2])]+" "+types[tokens.Data[i+3]])
	}
	have := strings.Join(read, ", ")
	for _, want := range []string{"variable keyword, \" string, model variable, \" string",
		"type property, default property",
		"inference keyword, \" string, vllm class", "var namespace, model variable",
		"environment namespace, atropos class, math variable",
		"10 number", "5 code units, /* two comment, lines */ comment"} {
		if !strings.Contains(have, want) {
			t.Errorf("lacks %q in\n%s", want, have)
		}
	}
}

// slow plugins let a test cancel a request that waits for them.
type slow struct {
	fakes
	entered, leave chan struct{}
}

func (s slow) Lookup(k kind.Kind, name string) (*schema.PluginSchema, error) {
	select {
	case s.entered <- struct{}{}:
	default:
	}
	<-s.leave
	return s.fakes.Lookup(k, name)
}

func TestCancellation(t *testing.T) {
	t.Parallel()
	plugins := slow{fakePlugins(t), make(chan struct{}, 1), make(chan struct{})}
	s := start(t, write(t, nil), lsp.Options{Plugins: func() (schema.Plugins, error) { return plugins, nil }})
	at := s.at("a.hcl", strings.Replace(loop, "  steps        =", "  st|eps        =", 1))
	<-plugins.entered
	ctx, cancel := context.WithCancel(s.ctx)
	answered := make(chan error, 1)
	go func() {
		answered <- protocol.Call(ctx, s.conn, protocol.MethodTextDocumentHover,
			&protocol.HoverParams{TextDocumentPositionParams: at}, nil)
	}()
	// A request that needs no plugin is answered meanwhile.
	if got, err := s.server.DocumentSymbol(s.ctx,
		&protocol.DocumentSymbolParams{TextDocument: s.id("a.hcl")}); err != nil || got == nil {
		t.Fatal(got, err)
	}
	cancel()
	if err := <-answered; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	close(plugins.leave)
	if got := s.diagnostics("a.hcl"); len(got) != 0 {
		t.Error(summaries(got))
	}
}

// broken plugins count how often they are asked.
type broken struct {
	fakes
	asked *int
}

func (b broken) Lookup(k kind.Kind, name string) (*schema.PluginSchema, error) {
	if name == "words" {
		*b.asked++
		return nil, errors.New("it does not start")
	}
	return b.fakes.Lookup(k, name)
}

// TestABrokenPluginIsAskedOnce, not with each keystroke; again after a save.
func TestABrokenPluginIsAskedOnce(t *testing.T) {
	t.Parallel()
	asked := 0
	s := start(t, write(t, nil), lsp.Options{Plugins: func() (schema.Plugins, error) {
		return broken{fakePlugins(t),
			&asked}, nil
	}})
	src := "environment \"words\" \"a\" {\n}\n"
	s.open("a.hcl", src)
	for range 5 {
		if got := summaries(s.diagnostics("a.hcl")); !strings.Contains(got, "it does not start") {
			t.Fatal(got)
		}
		src += "# more\n"
		s.replace("a.hcl", src)
	}
	s.diagnostics("a.hcl")
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	if err := s.server.DidSave(s.ctx, &protocol.DidSaveTextDocumentParams{TextDocument: s.id("a.hcl")}); err != nil {
		t.Fatal(err)
	}
	s.replace("a.hcl", src+"# saved\n")
	s.diagnostics("a.hcl")
	if asked != 2 {
		t.Errorf("asked %d times after a save", asked)
	}
}

// TestRandomEdits types nonsense into real recipes, at random places, and asks everything everywhere.
func TestRandomEdits(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	recipes, err := filepath.Glob("../../recipes/*.hcl")
	if err != nil || len(recipes) == 0 {
		t.Fatal(err)
	}
	s := start(t, write(t, nil), lsp.Options{})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range 15 {
		path := recipes[random.IntN(len(recipes))]
		src, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("%d.hcl", i)
		s.open(name, string(src))
		for range 10 {
			s.change(name, randomChange(random, string(src)))
			s.askEverything(name, protocol.Position{Line: random.Uint32N(uint32(strings.Count(string(src), "\n") + 2)),
				Character: random.Uint32N(80)})
		}
		if err := s.server.DidClose(s.ctx, &protocol.DidCloseTextDocumentParams{TextDocument: s.id(name)}); err != nil {
			t.Fatal(err)
		}
	}
}

func randomChange(random *rand.Rand, src string) protocol.TextDocumentContentChangeEvent {
	pieces := []string{"", "{", "}", "[", "]", "\"", "${", "\n", ".", " = ", "var.", "<<E\n", "for x in",
		"trainer \"grpo\" \"", "/*", "#", "𐐀",
		"(", ")", "\n}\n", "inference.vllm.policy", "dynamic \"reward\" {\n", "\x00", "\r"}
	place := func() protocol.Position {
		return protocol.Position{Line: random.Uint32N(uint32(strings.Count(src, "\n") + 2)), Character: random.Uint32N(40)}
	}
	start := place()
	end := start
	if random.IntN(3) == 0 {
		end = place()
	}
	return &protocol.TextDocumentContentChangePartial{Range: protocol.Range{Start: start, End: end},
		Text: pieces[random.IntN(len(pieces))]}
}

// askEverything fails the test when a request fails inside the server. A rename may be refused.
func (s *session) askEverything(name string, p protocol.Position) {
	s.tb.Helper()
	id := s.id(name)
	at := protocol.TextDocumentPositionParams{TextDocument: id, Position: p}
	check := func(method string, err error) {
		var failed *jsonrpc2.Error
		if errors.As(err,
			&failed) && (failed.Code == jsonrpc2.Code(protocol.CodeContentModified) ||
			failed.Code == jsonrpc2.Code(protocol.LSPErrorCodesRequestFailed)) {
			return
		}
		if err != nil {
			s.tb.Fatalf("%s: %v", method, err)
		}
	}
	_, err := s.server.Completion(s.ctx, &protocol.CompletionParams{TextDocumentPositionParams: at})
	check("completion", err)
	_, err = s.server.Hover(s.ctx, &protocol.HoverParams{TextDocumentPositionParams: at})
	check("hover", err)
	_, err = s.server.Definition(s.ctx, &protocol.DefinitionParams{TextDocumentPositionParams: at})
	check("definition", err)
	_, err = s.server.References(s.ctx, &protocol.ReferenceParams{TextDocumentPositionParams: at})
	check("references", err)
	_, err = s.server.Rename(s.ctx, &protocol.RenameParams{TextDocumentPositionParams: at, NewName: "renamed"})
	check("rename", err)
	_, err = s.server.PrepareRename(s.ctx, &protocol.PrepareRenameParams{TextDocumentPositionParams: at})
	check("prepareRename", err)
	_, err = s.server.DocumentHighlight(s.ctx, &protocol.DocumentHighlightParams{TextDocumentPositionParams: at})
	check("highlight", err)
	_, err = s.server.DocumentSymbol(s.ctx, &protocol.DocumentSymbolParams{TextDocument: id})
	check("symbols", err)
	_, err = s.server.SemanticTokensFull(s.ctx, &protocol.SemanticTokensParams{TextDocument: id})
	check("tokens", err)
	_, err = s.server.Formatting(s.ctx, &protocol.DocumentFormattingParams{TextDocument: id})
	check("formatting", err)
	_, err = s.server.CodeAction(s.ctx, &protocol.CodeActionParams{TextDocument: id, Range: protocol.Range{End: p}})
	check("actions", err)
}
