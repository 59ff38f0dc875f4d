"""`environment "agent"`: the reward function of what a program has done."""
