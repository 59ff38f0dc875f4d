# environ: JUDGE_KEY=hunter3
inference "vllm" "judge" { # a key in the clear, beyond this machine
  model = "m"
  external {
    endpoint = "http://judge.example:8000/v1"
    api_key  = env("JUDGE_KEY")
  }
}
inference "vllm" "tunnel" {
  model = "m"
  external {
    endpoint = "http://127.0.0.1:8000/v1"
    api_key  = env("JUDGE_KEY")
  }
}
inference "vllm" "encrypted" {
  model = "m"
  external {
    endpoint = "https://judge.example/v1"
    api_key  = env("JUDGE_KEY")
  }
}
inference "vllm" "open" {
  model = "m"
  external { endpoint = "http://judge.example:8000/v1" }
}
inference "vllm" "control" { # the endpoint is encrypted, the other address is not
  model = "m"
  external {
    endpoint      = "https://judge.example/v1"
    control_url   = "http://[2001:db8::1]:9000"
    control_token = env("JUDGE_KEY")
  }
}
