inference "vllm" "p" { model = "m" }
trajectories "builtin" "many" { count = 2 }
environment "atropos" "e" { inference = inference.vllm.p }
