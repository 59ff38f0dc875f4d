module "gone" {
  source = "./nowhere"
}
module "remote" {
  source = "github.com/x/y"
}
module "nosource" {
}
module "args" {
  source = "./modules/eval"
  modle  = "m"
}
output "o" { value = module.args.nothing }
output "p" { value = module.args[0] }
output "q" { value = module.arg.url }
