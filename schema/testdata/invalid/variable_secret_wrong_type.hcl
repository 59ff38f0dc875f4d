# environ: RECIPE_VAR_n=hunter2
variable "n" {
  type      = number
  sensitive = true
}
