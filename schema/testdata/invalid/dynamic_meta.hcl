inference "vllm" "p" {
  model = "m"
  dynamic "placement" {
    for_each = [1]
    content {
      gpus = placement.value
    }
  }
  dynamic {
    for_each = []
  }
  health "x" {}
}
