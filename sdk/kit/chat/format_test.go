package chat_test

import (
	"testing"

	"github.com/recipe-rl/recipe/sdk/kit/chat"
)

func TestFormatsOfTemplates(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, template   string
		tools, reasoning chat.Format
		takes            bool
	}{
		{"no tools", "{{ messages }}<|im_start|>", "", "", false},
		{"Qwen 2.5", `{%- if tools %}<tool_call>{"name": …}</tool_call>`, chat.Hermes, "", true},
		{"Qwen 3", `<|im_start|>{%- if tools %}<tool_call></tool_call>{{ '<think>' if enable_thinking }}`, chat.Hermes, chat.Qwen3, true},
		{"Qwen3-Coder", "{%- if tools %}<tool_call><function=name><parameter=x>", chat.Qwen3Coder, "", true},
		{"Llama 3.1", `<|start_header_id|>{%- if tools %}{"name": …, "parameters": …}`, chat.Llama3, "", true},
		{"Llama 3.1, Python", "<|start_header_id|>{%- if tools %}<|python_tag|>", chat.Llama3, "", true},
		{"Mistral", "[AVAILABLE_TOOLS]{{ tools }}[TOOL_CALLS]", chat.Mistral, "", true},
		{"GLM 4.5", "{%- if tools %}<tool_call>f<arg_key>k</arg_key></tool_call><think>", chat.GLM45, chat.GLM45, true},
		{"DeepSeek V3", "{% if tools %}<｜tool▁calls▁begin｜>function```json<｜Assistant｜>", chat.DeepSeekV3, "", true},
		{"DeepSeek V3.1", "{% if tools %}<｜tool▁calls▁begin｜><｜Assistant｜></think>", chat.DeepSeek31, chat.DeepSeekR1, true},
		{"gpt-oss", "{% if tools %}<|channel|>analysis<|call|>", chat.GPTOSS, chat.GPTOSS, true},
		{"Kimi K2", "{% if tools %}<|tool_calls_section_begin|>", chat.KimiK2, "", true},
		{"MiniMax M2", "{% if tools %}<minimax:tool_call>", chat.MiniMaxM2, "", true},
		{"LFM2 that reasons", "<|im_start|>{% if tools %}<|tool_call_start|>[<think>", chat.LFM2, "", true},
		{"Gemma 4", "{% if tools %}<|tool_call>call:f", chat.Gemma4, "", true},
		{"tools in a format of its own", "{% if tools %}@@call", "", "", true},
		{"marks without tools", "<tool_call>", "", "", false},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := chat.Tools(tc.template); got != tc.tools {
				t.Errorf("tools: got %q, want %q", got, tc.tools)
			}
			if got := chat.Reasoning(tc.template); got != tc.reasoning {
				t.Errorf("reasoning: got %q, want %q", got, tc.reasoning)
			}
			if got := chat.TakesTools(tc.template); got != tc.takes {
				t.Errorf("takes tools: got %t, want %t", got, tc.takes)
			}
		})
	}
}

func TestFormatsByName(t *testing.T) {
	t.Parallel()
	tests := []struct {
		model            string
		tools, reasoning chat.Format
	}{
		{"Qwen/Qwen2.5-1.5B-Instruct", chat.Hermes, ""},
		{"Qwen/Qwen3-8B", chat.Hermes, chat.Qwen3},
		{"Qwen/Qwen3-4B-Instruct-2507", chat.Hermes, ""},
		{"Qwen/Qwen3-Coder-30B-A3B-Instruct", chat.Qwen3Coder, ""},
		{"Qwen/Qwen3.5-9B", chat.Qwen3Coder, chat.Qwen3},
		{"NousResearch/Hermes-3-Llama-3.1-8B", chat.Hermes, ""},
		{"meta-llama/Llama-3.2-1B-Instruct", chat.Llama3, ""},
		{"mistralai/Ministral-8B-Instruct-2410", chat.Mistral, ""},
		{"deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "", chat.DeepSeekR1},
		{"deepseek-ai/DeepSeek-V3.1", chat.DeepSeek31, ""},
		{"deepseek-ai/DeepSeek-V3-0324", chat.DeepSeekV3, ""},
		{"openai/gpt-oss-20b", chat.GPTOSS, chat.GPTOSS},
		{"HuggingFaceTB/SmolLM2-135M-Instruct", "", ""},
		{"meta-llama/Meta-Llama-3-8B-Instruct", "", ""},
	}
	for _, tc := range tests {
		if tools, reasoning := chat.ByName(tc.model); tools != tc.tools || reasoning != tc.reasoning {
			t.Errorf("%s: got %q and %q, want %q and %q", tc.model, tools, reasoning, tc.tools, tc.reasoning)
		}
	}
}
