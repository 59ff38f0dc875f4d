inference "vllm" "x" {
  model                 = "m"
  environment_variables = ["A=b"]
}
inference "vllm" "y" {
  model = "m"
  environment_variables = {
    A = { b = 1 }
  }
}
