"""`environment "reasoning_gym"`: the procedural tasks of reasoning-gym."""
