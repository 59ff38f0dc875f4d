# var: modell=x
variable "model" { default = "m" }
