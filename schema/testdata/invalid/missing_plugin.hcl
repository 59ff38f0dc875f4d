inference "vlm" "policy" {
  model = "m"
}
trainer "ppo" "t" {
  model = "m"
}
