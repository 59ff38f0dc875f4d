# var: number=7
# var: text=7
# var: free={ a = [1, "x"] }
# var: wins=option
# var-file: testdata/valid/variables.vars.hcl
# var-file: testdata/valid/variables.vars.json
# environ: RECIPE_VAR_from_env=3
# environ: RECIPE_VAR_wins=environment
# environ: RECIPE_VAR_undeclared=ignored
variable "number" { type = number }
variable "text" { type = string }
variable "free" {}
variable "from_env" { type = number }
variable "from_file" { type = list(string) }
variable "from_json" { type = map(number) }
variable "wins" { type = string }
variable "optional" {
  type = object({ a = number, b = optional(string, "beta") })
  default = { a = 1 }
}
variable "secret" {
  type      = string
  sensitive = true
  default   = "hunter2"
  validation {
    condition     = strlen(var.secret) > 3
    error_message = "Too short."
  }
}
inference "vllm" "m" {
  model         = var.text
  max_model_len = var.number * 100
  token         = var.secret
  arguments     = { secret = var.secret, json = jsonencode(var.optional) }
}
output "all" { value = [var.number, var.text, var.free, var.from_env, var.from_file, var.from_json, var.wins, var.optional] }
output "hidden" {
  value     = var.secret
  sensitive = true
}
output "shown" { value = nonsensitive(strlen(var.secret)) }
