inference "vllm" "policy" {
  model       = "m"
  served_name = "Policy 1"
}
