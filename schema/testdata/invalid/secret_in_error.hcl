# environ: RECIPE_VAR_key=hunter2
# environ: API_KEY=hunter2hunter2
variable "key" {
  type      = string
  sensitive = true
}
locals {
  a = file(var.key)
  b = lookup({ x = 1 }, env("API_KEY"))
  c = regex("[0-9]{9}", upper(var.key))
  d = tonumber("${env("API_KEY")}")
  e = { (var.key) = 1 }
  f = [1, 2][var.key]
}
inference "vllm" "p" {
  model       = "m"
  dtype       = var.key
  served_name = "${var.key}!"
}
module "m" {
  source = "./modules/eval"
  model  = file(var.key)
}
