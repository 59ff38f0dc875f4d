module "eval" {
  source = "../modules/eval"
  model  = "m"
}
module "many" {
  source   = "../modules/eval"
  for_each = { a = "x", b = "y" }
  model    = each.value
  size     = 7
}
module "outer" {
  source = "../modules/outer"
  count  = 2
  names  = ["p", "q"]
}
environment "atropos" "e" {
  inference = module.eval.policy
  judge     = module.many["b"].policy
}
output "url" { value = module.eval.policy.base_url }
output "urls" { value = [for name, m in module.many : "${name}: ${m.model}"] }
output "outer" { value = module.outer[1].models }
