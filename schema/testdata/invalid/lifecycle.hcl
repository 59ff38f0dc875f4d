inference "vllm" "policy" { model = "m" }
inference "vllm" "x" {
  model = "m"
  lifecycle {
    prevent_destroy = true
    precondition {
      condition     = 1 > 2
      error_message = "One is not above two."
    }
    precondition {
      condition = var.nope
    }
    postcondition {
      condition     = self.max_model_len
      error_message = "x"
    }
    check {}
  }
}
