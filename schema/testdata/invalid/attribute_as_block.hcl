inference "vllm" "policy" {
  model = "m"
  arguments {
    a = "b"
  }
  environment_variables {
    A = "b"
  }
}
