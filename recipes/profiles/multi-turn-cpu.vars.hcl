# recipes/multi-turn.hcl on a CPU: SmolLM2-135M, which was not made for tool calling, multiplies two numbers of two digits. It cannot
# do that by itself; it can copy the numbers into a call and the result into an answer. After one example in the prompt none of 8
# samples of the untrained model began with a call of the calculator, after these two 4 did, 3 of them with the numbers asked for.
model              = "HuggingFaceTB/SmolLM2-135M-Instruct"
chat_template_name = null
devices            = null
dtype              = "float32"
steps              = 12
batch_size         = 16
learning_rate      = 1e-5
lora_rank          = 0
max_length         = 320 # a conversation with two whole turns has up to 280 tokens

config = {
  train_path     = "environments/products/train.jsonl"
  test_path      = "environments/products/test.jsonl"
  max_turns      = 2
  max_new_tokens = 40
  # Greedy, the untrained model is right in all of the held-out questions after these examples; sampled, in a third.
  eval_temperature = 1
  system_prompt    = <<-TEXT
    Problem: What is 23 * 31?
    <tool_call>{"name": "calculator", "arguments": {"expression": "23 * 31"}}</tool_call>
    <tool_response>713</tool_response>
    <answer>713</answer>

    Problem: What is 84 * 12?
    <tool_call>{"name": "calculator", "arguments": {"expression": "84 * 12"}}</tool_call>
    <tool_response>1008</tool_response>
    <answer>1008</answer>
  TEXT
}
