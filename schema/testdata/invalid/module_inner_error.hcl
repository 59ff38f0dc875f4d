module "broken" {
  source = "./modules/broken"
  count  = 3
}
