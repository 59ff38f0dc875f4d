# recipes/agent-tools.hcl on a CPU: SmolLM2-135M, whose untrained answers are right in one of six questions.
model         = "HuggingFaceTB/SmolLM2-135M-Instruct"
devices       = null
dtype         = "float32"
steps         = 12
batch_size    = 32
learning_rate = 1e-5
programs      = 8
