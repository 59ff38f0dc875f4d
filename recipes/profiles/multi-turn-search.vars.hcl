# recipes/multi-turn.hcl with search: questions about invented islands, which no model can answer without the texts in
# environments/islands/texts. The questions of four of the islands are held out.
config = {
  corpus         = "environments/islands/texts" # a folder of .txt and .md files
  passages       = 3                            # that one search returns at most
  train_path     = "environments/islands/train.jsonl"
  test_path      = "environments/islands/test.jsonl"
  max_turns      = 6
  max_new_tokens = 256
}
