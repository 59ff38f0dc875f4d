# An environment of your own in one Python file: a tiny language model learns to write sevens. Needs Go's binary and
# python3, no package and no GPU; a minute on a laptop. docs/authors/python-environment.md explains it.

recipe {
  required_plugins {
    words = { source = "./environments/words.py" } # the class in it makes the block below
  }
}

inference "tiny" "policy" {}

environment "words" "sevens" {
  inference = inference.tiny.policy
  letter    = "7" # an attribute that the file's settings declare
}

trainer "tiny" "policy" {
  environments  = [environment.words.sevens]
  steps         = 100
  batch_size    = 128
  learning_rate = 1e-3
}

sync "weights" "policy" {
  trainer   = trainer.tiny.policy
  inference = [inference.tiny.policy]
}
