recipe {
  name             = "a/b"
  required_version = "new"
  title            = "x"
  required_plugins {
    vllm = "0.1"
    grpo = { sauce = "oci://x" }
  }
  plugins {}
}
recipe {}
