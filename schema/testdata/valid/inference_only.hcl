inference "vllm" "policy" { model = "m" }
