recipe {
  required_plugins {
    vllm = { source = "oci://b", version = "1.0" }
  }
}
