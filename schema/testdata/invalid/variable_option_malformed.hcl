# var: list=[a
variable "list" { type = list(string) }
