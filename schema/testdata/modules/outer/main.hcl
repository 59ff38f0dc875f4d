variable "names" { type = list(string) }
module "inner" {
  source   = "../eval"
  for_each = toset(var.names)
  model    = "${each.key}!"
}
environment "atropos" "e" {
  inference = module.inner["p"].policy
}
output "models" { value = [for m in module.inner : m.model] }
