inference "vllm" "policy" {
  model = file("nowhere.txt")
}
