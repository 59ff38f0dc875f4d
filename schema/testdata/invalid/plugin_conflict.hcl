recipe {
  required_plugins {
    vllm = { source = "oci://a", version = "1.0" }
  }
}
module "m" {
  source = "./modules/required"
}
