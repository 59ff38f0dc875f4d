"""`environment "reward"`: a reward function in TRL's signature, and a dataset."""
