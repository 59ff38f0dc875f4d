module "eval" {
  source = "./modules/eval"
  model  = module.eval.url
}
