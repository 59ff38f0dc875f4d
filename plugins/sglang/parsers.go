package sglang

import "github.com/recipe-rl/recipe/sdk/kit/chat"

// hermes is the parser of the form that the gateway reads itself.
const hermes = "qwen25"

// toolParsers are SGLang's names of its parsers of tool calls. All are known to each supported version.
var toolParsers = map[chat.Format]string{
	chat.Hermes: hermes, chat.Qwen3Coder: "qwen3_coder", chat.Llama3: "llama3", chat.Mistral: "mistral",
	chat.GLM45: "glm45", chat.DeepSeekV3: "deepseekv3", chat.DeepSeek31: "deepseekv31", chat.KimiK2: "kimi_k2",
	chat.GPTOSS: "gpt-oss", chat.MiniMaxM2: "minimax-m2", chat.LFM2: "lfm2",
	chat.Gemma4: "gemma4",
}

// reasoningParsers are SGLang's names of its parsers of reasoning.
var reasoningParsers = map[chat.Format]string{
	chat.Qwen3: "qwen3", chat.DeepSeekR1: "deepseek-r1", chat.GLM45: "glm45", chat.GPTOSS: "gpt-oss",
}
