# var-file: testdata/nowhere.vars.hcl
# var-file: testdata/broken.vars.hcl
variable "a" { type = number }
variable "b" { type = number }
