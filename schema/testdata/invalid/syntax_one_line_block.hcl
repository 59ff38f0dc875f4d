trainer "grpo" "t" {
  lora { rank = 64 alpha = 32 }
}
