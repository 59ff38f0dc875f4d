package vllm

import "github.com/recipe-rl/recipe/sdk/kit/chat"

// hermes is the parser of the form that the gateway reads itself.
const hermes = "hermes"

// toolParsers are vLLM's names of its parsers of tool calls. All are known to each supported version.
var toolParsers = map[chat.Format]string{
	chat.Hermes: hermes, chat.Qwen3Coder: "qwen3_coder", chat.Llama3: "llama3_json", chat.Mistral: "mistral",
	chat.GLM45: "glm45", chat.DeepSeekV3: "deepseek_v3", chat.DeepSeek31: "deepseek_v31", chat.KimiK2: "kimi_k2",
	chat.LFM2: "lfm2", chat.Gemma4: "gemma4", chat.GPTOSS: "openai", chat.MiniMaxM2: "minimax_m2",
	chat.SeedOSS: "seed_oss",
}

// reasoningParsers are vLLM's names of its parsers of reasoning.
var reasoningParsers = map[chat.Format]string{
	chat.Qwen3: "qwen3", chat.DeepSeekR1: "deepseek_r1", chat.GLM45: "glm45", chat.GPTOSS: "openai_gptoss",
	chat.SeedOSS: "seed_oss",
}
