# var: n={}
variable "n" { type = number }
