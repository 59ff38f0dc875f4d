package lsp_test

import (
	"context"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.lsp.dev/jsonrpc2"
	"go.lsp.dev/protocol"
	"go.lsp.dev/uri"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/lsp"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// deadline bounds every wait for the server.
const deadline = 10 * time.Minute

type inferenceConfig struct {
	Model string `recipe:"model" required:"true" doc:"name or path"`
	DType string `recipe:"dtype" default:"auto" enum:"auto,float32,bfloat16" doc:"type of the weights"`
	Len   int    `recipe:"max_model_len" default:"2048" min:"16" unit:"tokens"`
	Eager bool   `recipe:"eager" default:"false"`
	Old   string `recipe:"old" deprecated:"use model"`
}

type executorConfig struct {
	Partition string `recipe:"partition"`
}

type environmentConfig struct {
	Inference spec.Ref `recipe:"inference" reference:"inference" required:"true"`
	GroupSize int      `recipe:"group_size" default:"8" min:"1"`
}

type trainerConfig struct {
	Model        string     `recipe:"model" required:"true"`
	Environments []spec.Ref `recipe:"environments" reference:"environment" required:"true"`
	Steps        int        `recipe:"steps" required:"true" min:"1" doc:"optimizer steps"`
	Lora         *struct {
		Rank int `recipe:"rank" required:"true" min:"1" doc:"rank of the adapter"`
	} `recipe:"lora,block" doc:"trains an adapter"`
	Rewards []struct {
		Name string `recipe:"name" required:"true"`
	} `recipe:"reward,block"`
}

type syncConfig struct {
	Trainer   spec.Ref   `recipe:"trainer" reference:"trainer" required:"true"`
	Inference []spec.Ref `recipe:"inference" reference:"inference" required:"true"`
}

// fakes are plugins without processes.
type fakes map[kind.Kind]map[string]*schema.PluginSchema

func (f fakes) Lookup(k kind.Kind, name string) (*schema.PluginSchema, error) { return f[k][name], nil }

func (f fakes) Names(k kind.Kind) []string { return slices.Sorted(maps.Keys(f[k])) }

func fakePlugins(tb testing.TB) fakes {
	tb.Helper()
	f := fakes{}
	for _, p := range []struct {
		kind            kind.Kind
		name, summary   string
		config, outputs any
	}{
		{kind.Inference, "vllm", "a vLLM server", inferenceConfig{}, outputs.Inference{}},
		{kind.Inference, "tiny", "a small server", struct{}{}, outputs.Inference{}},
		{kind.Environment, "atropos", "an Atropos environment", environmentConfig{}, outputs.Environment{}},
		{kind.Trainer, "grpo", "trains by GRPO", trainerConfig{}, outputs.Trainer{}},
		{kind.Executor, "slurm", "submits jobs", executorConfig{}, struct{}{}},
		{kind.Sync, "weights", "moves weights", syncConfig{}, outputs.Sync{}},
	} {
		config, err := spec.Of(p.config)
		if err != nil {
			tb.Fatal(err)
		}
		out, err := spec.Of(p.outputs)
		if err != nil {
			tb.Fatal(err)
		}
		if f[p.kind] == nil {
			f[p.kind] = map[string]*schema.PluginSchema{}
		}
		f[p.kind][p.name] = &schema.PluginSchema{Kind: p.kind, Name: p.name, Summary: p.summary, Config: config, Outputs: out}
	}
	return f
}

// session is an editor with a server in this process.
type session struct {
	tb       testing.TB
	ctx      context.Context
	dir      string
	conn     jsonrpc2.Conn
	server   protocol.Server
	messages chan *protocol.PublishDiagnosticsParams
	versions map[string]int32
}

type editor struct {
	protocol.UnimplementedClient
	messages chan *protocol.PublishDiagnosticsParams
}

func (e editor) PublishDiagnostics(_ context.Context, p *protocol.PublishDiagnosticsParams) error {
	e.messages <- p
	return nil
}

func start(tb testing.TB, dir string, opts lsp.Options) *session {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	ours, theirs := net.Pipe()
	served := make(chan error, 1)
	if opts.Plugins == nil {
		plugins := fakePlugins(tb)
		opts.Plugins = func() (schema.Plugins, error) { return plugins, nil }
	}
	if opts.Log == nil {
		opts.Log = tb.Errorf // a server that is well has nothing to say
	}
	go func() { served <- lsp.Serve(ctx, theirs, opts) }()
	s := &session{tb: tb, ctx: ctx, dir: dir, messages: make(chan *protocol.PublishDiagnosticsParams, 1000),
		versions: map[string]int32{}}
	_, s.conn, s.server = protocol.NewClient(ctx, editor{messages: s.messages}, jsonrpc2.NewStream(ours))
	yes := true
	p := &protocol.InitializeParams{}
	p.WorkspaceFolders = protocol.NewNullable([]protocol.WorkspaceFolder{{URI: uri.File(dir), Name: "test"}})
	p.Capabilities.TextDocument = &protocol.TextDocumentClientCapabilities{
		Completion: &protocol.CompletionClientCapabilities{
			CompletionItem: &protocol.ClientCompletionItemOptions{SnippetSupport: &yes}}}
	if _, err := s.server.Initialize(ctx, p); err != nil {
		tb.Fatal(err)
	}
	if err := s.server.Initialized(ctx, &protocol.InitializedParams{}); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		defer cancel()
		if err := s.server.Shutdown(ctx); err != nil {
			tb.Error(err)
		}
		if err := s.server.Exit(ctx); err != nil {
			tb.Error(err)
		}
		if err := <-served; err != nil {
			tb.Error(err)
		}
		select { // Serve closes the connection itself: nothing of it runs on, and logs, after the end
		case <-s.conn.Done():
		case <-ctx.Done():
			tb.Error("the server has ended and its connection is open")
		}
		ours.Close()
	})
	return s
}

// write puts files into a new folder. A cursor mark in them is taken out.
func write(tb testing.TB, files map[string]string) string {
	tb.Helper()
	dir := tb.TempDir()
	for name, src := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(src, "|", "")), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	return dir
}

func (s *session) uri(name string) uri.URI { return uri.File(filepath.Join(s.dir, name)) }

func (s *session) id(name string) protocol.TextDocumentIdentifier {
	return protocol.TextDocumentIdentifier{URI: s.uri(name)}
}

func (s *session) open(name, src string) {
	s.tb.Helper()
	s.versions[name] = 1
	if err := s.server.DidOpen(s.ctx, &protocol.DidOpenTextDocumentParams{TextDocument: protocol.TextDocumentItem{
		URI: s.uri(name), LanguageID: "hcl", Version: 1, Text: src}}); err != nil {
		s.tb.Fatal(err)
	}
}

func (s *session) change(name string, changes ...protocol.TextDocumentContentChangeEvent) {
	s.tb.Helper()
	s.versions[name]++
	p := &protocol.DidChangeTextDocumentParams{ContentChanges: changes}
	p.TextDocument.URI, p.TextDocument.Version = s.uri(name), s.versions[name]
	if err := s.server.DidChange(s.ctx, p); err != nil {
		s.tb.Fatal(err)
	}
}

func (s *session) replace(name, src string) {
	s.tb.Helper()
	s.change(name, &protocol.TextDocumentContentChangeWholeDocument{Text: src})
}

// diagnostics waits for those of the newest version of an open file.
func (s *session) diagnostics(name string) []protocol.Diagnostic {
	s.tb.Helper()
	for {
		select {
		case m := <-s.messages:
			version, ok := m.Version.Get()
			if m.URI == s.uri(name) && (!ok || version == s.versions[name]) {
				return m.Diagnostics
			}
		case <-s.ctx.Done():
			s.tb.Fatalf("no diagnostics of version %d of %s within %s", s.versions[name], name, deadline)
		}
	}
}

// marked takes the cursor mark out of a text and returns its place. The test texts are ASCII.
func marked(tb testing.TB, src string) (string, protocol.Position) {
	tb.Helper()
	before, after, ok := strings.Cut(src, "|")
	if !ok {
		tb.Fatalf("there is no | in %q", src)
	}
	return before + after, protocol.Position{Line: uint32(strings.Count(before, "\n")),
		Character: uint32(len(before) - strings.LastIndexByte(before, '\n') - 1)}
}

// at opens a file with a cursor mark and returns the place.
func (s *session) at(name, src string) protocol.TextDocumentPositionParams {
	s.tb.Helper()
	src, position := marked(s.tb, src)
	s.open(name, src)
	return protocol.TextDocumentPositionParams{TextDocument: s.id(name), Position: position}
}
