package lsp_test

import (
	"slices"
	"strings"
	"testing"

	"go.lsp.dev/protocol"

	"github.com/recipe-rl/recipe/schema/lsp"
)

// loop is a recipe without a mistake.
const loop = `variable "model" {
  type        = string
  default     = "m"
  description = "what learns"
}

locals {
  steps = 10 * 2
}

inference "vllm" "policy" {
  model = var.model
}

environment "atropos" "math" {
  inference = inference.vllm.policy
}

trainer "grpo" "policy" {
  model        = var.model
  environments = [environment.atropos.math]
  steps        = local.steps
}

sync "weights" "policy" {
  trainer   = trainer.grpo.policy
  inference = [inference.vllm.policy]
}
`

func TestCompletion(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		src            string
		want, unwanted []string // labels
	}{
		"empty file":        {"|", []string{"recipe", "variable", "locals", "trainer", "inference"}, []string{"model"}},
		"start of a block":  {loop + "\ntra|", []string{"trainer"}, nil},
		"plugins":           {loop + "\ninference \"|\"", []string{"vllm", "tiny"}, []string{"grpo"}},
		"plugins, unquoted": {loop + "\ninference |", []string{"vllm", "tiny"}, []string{"grpo"}},
		"plugins, unclosed": {loop + "\ninference \"v|", []string{"vllm"}, []string{"grpo"}},
		"no names":          {loop + "\ninference \"vllm\" \"|\" {\n}\n", nil, []string{"vllm"}},
		"attributes": {loop + "\ntrainer \"grpo\" \"b\" {\n  |\n}\n", []string{"model", "steps", "lora", "reward",
			"count", "placement", "stop_when", "dynamic"}, []string{"external", "dtype"}},
		"no second time": {loop + "\ntrainer \"grpo\" \"b\" {\n  model = 1\n  lora {\n  }\n  |\n}\n", []string{"steps"},
			[]string{"model", "lora"}},
		"also behind": {loop + "\ntrainer \"grpo\" \"b\" {\n  |\n  model = 1\n}\n", []string{"steps"},
			[]string{"model"}},
		"half an attribute": {loop + "\ntrainer \"grpo\" \"b\" {\n  st|\n}\n", []string{"steps"}, nil},
		"service": {"inference \"vllm\" \"b\" {\n  |\n}\n", []string{"external", "dtype"}, []string{"stop_when",
			"steps"}},
		"unclosed":       {"trainer \"grpo\" \"b\" {\n  |", []string{"steps"}, nil},
		"unclosed above": {"trainer \"grpo\" \"b\" {\n  |\n\n" + loop, []string{"steps"}, nil},
		"nested block":   {"trainer \"grpo\" \"b\" {\n  lora {\n    |\n  }\n}\n", []string{"rank"}, []string{"steps"}},
		"meta block":     {"trainer \"grpo\" \"b\" {\n  health {\n    |\n  }\n}\n", []string{"stall_timeout"}, nil},
		"external": {"inference \"vllm\" \"b\" {\n  external {\n    |\n  }\n}\n", []string{"endpoint", "api_key"},
			nil},
		"dynamic": {"trainer \"grpo\" \"b\" {\n  dynamic \"|\"\n}\n", []string{"reward"}, []string{"lora"}},
		"content": {"trainer \"grpo\" \"b\" {\n  dynamic \"reward\" {\n    content {\n      |\n    }\n  }\n}\n",
			[]string{"name"}, []string{"steps"}},
		"variable block": {"variable \"x\" {\n  |\n}\n", []string{"type", "default", "validation", "nullable"}, nil},
		"types":          {"variable \"x\" {\n  type = |\n}\n", []string{"string", "object"}, []string{"upper"}},
		"output block":   {"output \"x\" {\n  |\n}\n", []string{"value", "sensitive"}, nil},
		"recipe block":   {"recipe {\n  |\n}\n", []string{"name", "required_plugins"}, nil},
		"enum":           {"inference \"vllm\" \"b\" {\n  dtype = |\n}\n", []string{"auto", "float32"}, nil},
		"enum in quotes": {"inference \"vllm\" \"b\" {\n  dtype = \"flo|\"\n}\n", []string{"float32"}, []string{"upper"}},
		"enum, unclosed": {"inference \"vllm\" \"b\" {\n  dtype = \"flo|\n}\n", []string{"float32"}, []string{"upper"}},
		"bool":           {"inference \"vllm\" \"b\" {\n  eager = |\n}\n", []string{"true", "false"}, nil},
		"roots": {loop + "\noutput \"x\" {\n  value = |\n}\n", []string{"var", "local", "trainer", "inference",
			"path", "upper", "env"}, []string{"module", "each", "self"}},
		"blocks of a kind": {loop + "\nenvironment \"atropos\" \"b\" {\n  inference = |\n}\n",
			[]string{"inference.vllm.policy"}, []string{"trainer.grpo.policy"}},
		"blocks in a list": {loop + "\ntrainer \"grpo\" \"b\" {\n  environments = [|]\n}\n",
			[]string{"environment.atropos.math"}, []string{"inference.vllm.policy"}},
		"depends_on": {loop + "\ntrainer \"grpo\" \"b\" {\n  depends_on = [|]\n}\n",
			[]string{"environment.atropos.math", "inference.vllm.policy"}, nil},
		"variables": {loop + "\noutput \"x\" {\n  value = var.|\n}\n", []string{"model"}, []string{"steps",
			"upper"}},
		"variable in text": {loop + "\noutput \"x\" {\n  value = \"a ${var.mo|\"\n}\n", []string{"model"}, nil},
		"text":             {loop + "\noutput \"x\" {\n  value = \"a var.|\"\n}\n", nil, []string{"model"}},
		"heredoc":          {loop + "\noutput \"x\" {\n  value = <<E\n  ${local.|}\nE\n}\n", []string{"steps"}, nil},
		"locals":           {loop + "\noutput \"x\" {\n  value = local.|\n}\n", []string{"steps"}, []string{"model"}},
		"plugin of a kind": {loop + "\noutput \"x\" {\n  value = trainer.|\n}\n", []string{"grpo"}, []string{"vllm"}},
		"name of a block":  {loop + "\noutput \"x\" {\n  value = trainer.grpo.|\n}\n", []string{"policy"}, nil},
		"outputs": {loop + "\noutput \"x\" {\n  value = trainer.grpo.policy.|\n}\n", []string{"checkpoint",
			"steps", "address"}, nil},
		"outputs of one": {loop + "\noutput \"x\" {\n  value = trainer.grpo.policy[0].che|\n}\n", []string{"checkpoint"},
			nil},
		"in a function": {loop + "\noutput \"x\" {\n  value = upper(var.|\n}\n", []string{"model"}, nil},
		"each": {"trainer \"grpo\" \"b\" {\n  for_each = {}\n  steps = |\n}\n", []string{"each"},
			[]string{"count"}},
		"each key": {"trainer \"grpo\" \"b\" {\n  for_each = {}\n  steps = each.|\n}\n", []string{"key", "value"},
			nil},
		"self": {
			"trainer \"grpo\" \"b\" {\n  lifecycle {\n    precondition {\n      condition = self.|\n    }\n  }\n}\n",
			[]string{"steps", "checkpoint"}, nil},
		"comment":           {"trainer \"grpo\" \"b\" {\n  # mod|\n}\n", nil, []string{"model"}},
		"number":            {"trainer \"grpo\" \"b\" {\n  steps = 1|\n}\n", nil, []string{"upper"}},
		"module":            {"module \"eval\" {\n  |\n}\n", []string{"source", "count"}, nil},
		"alert":             {"alert \"a\" {\n  |\n}\n", []string{"metric", "stalled_for", "webhook"}, []string{"steps"}},
		"state of an alert": {"alert \"a\" {\n  state = |\n}\n", []string{"failed", "run_ended"}, nil},
		"tracking":          {"tracking \"tensorboard\" \"a\" {\n  |\n}\n", []string{"dir"}, []string{"steps"}},
		"tracker":           {"tracking \"|\" {\n}\n", []string{"tensorboard"}, nil},
		"executor":          {"executor \"|\" {\n}\n", []string{"slurm"}, []string{"grpo"}},
		"executor's body":   {"executor \"slurm\" \"c\" {\n  |\n}\n", []string{"partition"}, []string{"steps"}},
		"placement": {"executor \"slurm\" \"c\" {\n}\ntrainer \"grpo\" \"b\" {\n" +
			"  placement {\n    executor = |\n  }\n}\n", []string{"executor.slurm.c"},
			[]string{"trainer.grpo.b"}},
		"broken line before": {"trainer \"grpo\" \"b\" {\n  model = = \n  |\n}\n", []string{"steps"}, []string{"model"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, write(t, nil), lsp.Options{})
			labels, _ := s.complete("a.hcl", c.src)
			for _, want := range c.want {
				if !slices.Contains(labels, want) {
					t.Errorf("lacks %q: %q", want, labels)
				}
			}
			for _, not := range c.unwanted {
				if slices.Contains(labels, not) {
					t.Errorf("has %q: %q", not, labels)
				}
			}
		})
	}
}

func (s *session) complete(name, src string) ([]string, []protocol.CompletionItem) {
	s.tb.Helper()
	got, err := s.server.Completion(s.ctx, &protocol.CompletionParams{TextDocumentPositionParams: s.at(name, src)})
	if err != nil {
		s.tb.Fatal(err)
	}
	items := got.(*protocol.CompletionList).Items
	var labels []string
	for _, item := range items {
		labels = append(labels, item.Label)
	}
	return labels, items
}

func TestModuleCompletion(t *testing.T) {
	t.Parallel()
	s := start(t, write(t,
		map[string]string{
			"eval/main.hcl": "variable \"steps\" {\n  type = number\n}\noutput \"url\" {\n  value = var.steps\n}\n"}),
		lsp.Options{})
	labels, _ := s.complete("a.hcl", "module \"eval\" {\n  source = \"./eval\"\n  |\n}\n")
	if !slices.Contains(labels, "steps") || slices.Contains(labels, "source") {
		t.Errorf("%q", labels)
	}
	labels, _ = s.complete("b.hcl",
		"module \"eval\" {\n  source = \"./eval\"\n  steps = 1\n}\noutput \"x\" {\n  value = module.eval.|\n}\n")
	if !slices.Equal(labels, []string{"url"}) {
		t.Errorf("%q", labels)
	}
}

// TestCompletionEdits applies what is proposed.
func TestCompletionEdits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ src, label, want string }{
		"reference": {loop + "output \"x\" {\n  value = trainer.grpo.policy.che|\n}\n", "checkpoint",
			"trainer.grpo.policy.checkpoint\n"},
		"enum":         {"inference \"vllm\" \"b\" {\n  dtype = flo|\n}\n", "float32", "dtype = \"float32\"\n"},
		"enum, quoted": {"inference \"vllm\" \"b\" {\n  dtype = \"flo|\"\n}\n", "float32", "dtype = \"float32\"\n"},
		"attribute":    {"inference \"vllm\" \"b\" {\n  mod|\n}\n", "model", "  model = \"$0\"\n"},
		"has a value":  {"inference \"vllm\" \"b\" {\n  mod| = 1\n}\n", "model", "  model = 1\n"},
		"nested":       {"trainer \"grpo\" \"b\" {\n  lo|\n}\n", "lora", "  lora {\n  rank = $1\n  $0\n}\n"},
		"plugin": {"trainer |", "grpo",
			"trainer \"grpo\" \"${1:name}\" {\n  environments = [$2]\n  model = \"$3\"\n  steps = $4\n  $0\n}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, write(t, nil), lsp.Options{})
			_, items := s.complete("a.hcl", c.src)
			i := slices.IndexFunc(items, func(i protocol.CompletionItem) bool { return i.Label == c.label })
			if i < 0 {
				t.Fatalf("%q is not proposed", c.label)
			}
			src, _ := marked(t, c.src)
			if got := apply(t, src, []protocol.TextEdit{*items[i].TextEdit.(*protocol.TextEdit)}); !strings.Contains(got,
				c.want) {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// apply makes edits in an ASCII text.
func apply(tb testing.TB, src string, edits []protocol.TextEdit) string {
	tb.Helper()
	offset := func(p protocol.Position) int {
		at := 0
		for range p.Line {
			at += strings.IndexByte(src[at:], '\n') + 1
		}
		return at + int(p.Character)
	}
	slices.SortFunc(edits, func(a, b protocol.TextEdit) int { return offset(b.Range.Start) - offset(a.Range.Start) })
	for _, e := range edits {
		src = src[:offset(e.Range.Start)] + e.NewText + src[offset(e.Range.End):]
	}
	return src
}

func TestHover(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ src, want string }{
		"attribute":   {strings.Replace(loop, "  steps        =", "  st|eps        =", 1), "`steps`: whole number of at least 1, required\n\noptimizer steps"},
		"variable":    {strings.Replace(loop, "model        = var.model", "model        = var.mo|del", 1), "`var.model`: string, default `\"m\"`\n\nwhat learns\n\nValue: `\"m\"`"},
		"declaration": {strings.Replace(loop, "steps = 10", "st|eps = 10", 1), "`local.steps`\n\nValue: `20`"},
		"local":       {strings.Replace(loop, "local.steps", "local.st|eps", 1), "Value: `20`"},
		"block": {strings.Replace(loop, "trainer   = trainer.grpo.policy", "trainer   = trainer.grpo.po|licy", 1),
			"trains by GRPO"},
		"plugin":        {strings.Replace(loop, "inference \"vllm\"", "inference \"vl|lm\"", 1), "a vLLM server"},
		"nested block":  {"trainer \"grpo\" \"b\" {\n  lo|ra {\n  }\n}\n", "trains an adapter"},
		"nested":        {"trainer \"grpo\" \"b\" {\n  lora {\n    ra|nk = 1\n  }\n}\n", "rank of the adapter"},
		"meta-argument": {"trainer \"grpo\" \"b\" {\n  health {\n    stall_t|imeout = \"1m\"\n  }\n}\n", "default `\"30m0s\"`"},
		"output":        {loop + "output \"x\" {\n  value = trainer.grpo.policy.check|point\n}\n", "`checkpoint`: string"},
		"function":      {loop + "output \"x\" {\n  value = up|per(\"x\")\n}\n", "upper(str)"},
		"secret": {
			"variable \"key\" {\n  sensitive = true\n  default = \"hunter2\"\n}\nlocals {\n  x = var.k|ey\n}\n",
			"Value: sensitive"},
		"unknown": {
			loop + "locals {\n  c = trainer.grpo.policy.checkpoint\n}\noutput \"x\" {\n  value = local.|c\n}\n",
			"not known before the run starts"},
		"does not parse":  {loop + "locals {\n  y = [1,\n  x = var.mo|del\n}\n", "what learns"},
		"keyword":         {"vari|able \"x\" {\n}\n", "an input value"},
		"module variable": {"module \"eval\" {\n  source = \"./eval\"\n  st|eps  = 1\n}\n", "`steps`: number, required"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, write(t, map[string]string{"eval/main.hcl": "variable \"steps\" {\n  type = number\n}\n"}),
				lsp.Options{})
			got, err := s.server.Hover(s.ctx, &protocol.HoverParams{TextDocumentPositionParams: s.at("a.hcl", c.src)})
			if err != nil || got == nil {
				t.Fatal(got, err)
			}
			if text := got.Contents.(*protocol.MarkupContent).Value; !strings.Contains(text, c.want) || strings.Contains(text,
				"hunter2") && name == "secret" {
				t.Errorf("got %q, want %q", text, c.want)
			}
		})
	}
}
