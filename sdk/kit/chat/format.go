package chat

import (
	"regexp"
	"strings"
)

// Format names how a model writes tool calls, or its reasoning, in the text of an answer. Each engine has its own name
// for the parser of a format.
type Format string

// Formats of tool calls, by the models that brought them.
const (
	Hermes     Format = "hermes"      // Hermes, Qwen 2.5, Qwen 3: JSON in <tool_call>
	Qwen3Coder Format = "qwen3_coder" // Qwen3-Coder and later: <function=…> in <tool_call>
	Llama3     Format = "llama3"      // Llama 3.1 and later: JSON with "parameters"
	Mistral    Format = "mistral"     // [TOOL_CALLS]
	GLM45      Format = "glm45"       // <arg_key> and <arg_value> in <tool_call>
	DeepSeekV3 Format = "deepseek_v3" // JSON in a Markdown block
	DeepSeek31 Format = "deepseek_v31"
	KimiK2     Format = "kimi_k2"
	GPTOSS     Format = "gpt_oss" // the channels of Harmony
	MiniMaxM2  Format = "minimax_m2"
	SeedOSS    Format = "seed_oss"
	LFM2       Format = "lfm2"
	Gemma4     Format = "gemma4"
)

// Formats of reasoning that tool calls do not name already.
const (
	Qwen3      Format = "qwen3"       // <think>, which a request can turn off
	DeepSeekR1 Format = "deepseek_r1" // <think> that the template opens
)

// toolMarks are the texts by which a template shows its format of tool calls. The first that holds decides: later
// formats took over marks of earlier ones.
var toolMarks = []struct {
	format Format
	all    []string
}{
	{GPTOSS, []string{"<|channel|>", "<|call|>"}},
	{KimiK2, []string{"<|tool_calls_section_begin|>"}},
	{MiniMaxM2, []string{"<minimax:tool_call>"}},
	{MiniMaxM2, []string{"minimax:tool_call", "<invoke"}},
	{SeedOSS, []string{"<seed:tool_call>"}},
	{SeedOSS, []string{"seed:tool_call", "toolcall_begin_token"}},
	{LFM2, []string{"<|tool_list_start|>"}},
	{LFM2, []string{"<|tool_call_start|>"}},
	{Gemma4, []string{"<|tool_call>call:"}},
	{DeepSeekV3, []string{"<｜tool▁calls▁begin｜>", "```json"}},
	{DeepSeek31, []string{"<｜tool▁calls▁begin｜>"}},
	{GLM45, []string{"<tool_call>", "<arg_key>"}},
	{Qwen3Coder, []string{"<tool_call>", "<function="}},
	{Hermes, []string{"<tool_call>", "tools"}},
	{Mistral, []string{"[TOOL_CALLS]"}},
	{Llama3, []string{"<|python_tag|>"}},
	{Llama3, []string{"<|start_header_id|>", `"parameters"`}},
}

// Tools is the format in which a template has the model call tools; empty if the template has none or one that is not
// known. TakesTools tells the two apart.
func Tools(template string) Format {
	if !TakesTools(template) {
		return ""
	}
	for _, m := range toolMarks {
		if containsAll(template, m.all) {
			return m.format
		}
	}
	return ""
}

// TakesTools reports whether a template puts the tools of a request into the prompt.
func TakesTools(template string) bool { return strings.Contains(template, "tools") }

// Reasoning is the format in which a template has the model reason before it answers; empty if it has none, or one that
// is not known.
func Reasoning(template string) Format {
	switch {
	case containsAll(template, []string{"<|channel|>", "<|call|>"}):
		return GPTOSS
	case !strings.Contains(template, "think>"):
		return ""
	case strings.Contains(template, "<arg_key>"):
		return GLM45
	case strings.Contains(template, "<seed:think>"):
		return SeedOSS
	case strings.Contains(template, "<｜Assistant｜>"):
		return DeepSeekR1
	case strings.Contains(template, "<|im_start|>") && !strings.Contains(template, "<|tool_call_start|>"):
		return Qwen3
	}
	return ""
}

func containsAll(text string, parts []string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}

// families are the formats of models whose files are not on this machine, by their names on the hub. The first that
// matches decides.
var families = []struct {
	name             *regexp.Regexp
	tools, reasoning Format
}{
	{regexp.MustCompile(`qwen3-coder`), Qwen3Coder, ""},
	{regexp.MustCompile(`qwen3\.[5-9]`), Qwen3Coder, Qwen3},
	{regexp.MustCompile(`qwen3.*instruct|qwen2|hermes`), Hermes, ""},
	{regexp.MustCompile(`qwen3|qwq`), Hermes, Qwen3},
	{regexp.MustCompile(`deepseek-r1-distill`), "", DeepSeekR1},
	{regexp.MustCompile(`deepseek-v3\.1`), DeepSeek31, ""},
	{regexp.MustCompile(`deepseek-r1`), DeepSeekV3, DeepSeekR1},
	{regexp.MustCompile(`deepseek-v3(-|$)`), DeepSeekV3, ""},
	{regexp.MustCompile(`llama-3\.[1-3]`), Llama3, ""},
	{regexp.MustCompile(`mistral|mixtral|ministral|devstral`), Mistral, ""},
	{regexp.MustCompile(`glm-4\.[5-7]`), GLM45, GLM45},
	{regexp.MustCompile(`gpt-oss`), GPTOSS, GPTOSS},
	{regexp.MustCompile(`kimi-k2`), KimiK2, ""},
	{regexp.MustCompile(`minimax-m2`), MiniMaxM2, ""},
	{regexp.MustCompile(`seed-oss`), SeedOSS, SeedOSS},
	{regexp.MustCompile(`lfm2`), LFM2, ""},
	{regexp.MustCompile(`gemma-4`), Gemma4, ""},
}

// ByName is the format of tool calls, and that of reasoning, of a model on the hub; empty where they are not known.
func ByName(model string) (tools, reasoning Format) {
	model = strings.ToLower(model)
	for _, f := range families {
		if f.name.MatchString(model) {
			return f.tools, f.reasoning
		}
	}
	return "", ""
}
