module "loop" {
  source = "./modules/loop"
}
