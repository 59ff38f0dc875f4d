package lsp_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.lsp.dev/protocol"

	"github.com/recipe-rl/recipe/schema/lsp"
)

// manyBlocks is a recipe of n blocks, half of them in chains of ten by reference.
func manyBlocks(n int) string {
	var b strings.Builder
	b.WriteString("variable \"model\" {\n  type    = string\n  default = \"m\"\n}\n")
	for i := range n {
		model := "var.model"
		if i < n/2 && i%10 != 0 {
			model = fmt.Sprintf("inference.vllm.b%d.tokenizer", i-1)
		}
		fmt.Fprintf(&b,
			"\ninference \"vllm\" \"b%d\" {\n  model         = %s\n  max_model_len = %d\n  dtype         = \"auto\"\n"+
				"  environment_variables = {\n    NAME = \"block-%d\"\n    PATH = \"/models/${var.model}/%d\"\n  }\n"+
				"  placement { gpus = 1 }\n}\n", i, model, 1024+i, i, i)
	}
	return b.String()
}

// BenchmarkKeystroke types a character into a file of 1,000 blocks and waits for the completion at that place, or for
// the diagnostics of the whole recipe. docs/benchmarks/editor.md has figures.
func BenchmarkKeystroke(b *testing.B) {
	src := manyBlocks(1000)
	for name, line := range map[string]int{"first": 7, "last": strings.Count(src, "\n") - 8} {
		at := protocol.Position{Line: uint32(line), Character: 2}
		for what, wait := range map[string]func(*session){
			"completion": func(s *session) {
				got, err := s.server.Completion(s.ctx,
					&protocol.CompletionParams{TextDocumentPositionParams: protocol.TextDocumentPositionParams{
						TextDocument: s.id("a.hcl"), Position: protocol.Position{Line: at.Line, Character: 3}}})
				if err != nil || len(got.(*protocol.CompletionList).Items) == 0 {
					b.Fatal(got, err)
				}
			},
			"diagnostics": func(s *session) {
				if got := s.diagnostics("a.hcl"); len(got) == 0 {
					b.Fatal("the typed character is no mistake")
				}
			},
		} {
			b.Run(fmt.Sprintf("%s/%s", what, name), func(b *testing.B) {
				s := start(b, write(b, nil), lsp.Options{})
				s.open("a.hcl", src)
				if got := s.diagnostics("a.hcl"); len(got) != 0 {
					b.Fatal(summaries(got))
				}
				before := cpuTime(b)
				typed := false
				for b.Loop() {
					end := at
					text := "x"
					if typed { // the character before, so that the file does not grow
						end.Character++
						text = "y"
					}
					s.change("a.hcl", &protocol.TextDocumentContentChangePartial{Range: protocol.Range{Start: at, End: end},
						Text: text})
					typed = true
					wait(s)
				}
				b.ReportMetric(float64(cpuTime(b)-before)/float64(time.Millisecond)/float64(b.N), "cpu-ms/op")
			})
		}
	}
}

// cpuTime is the processor time of this process, garbage collection included: on a busy machine it is steadier than
// the time that passes.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
