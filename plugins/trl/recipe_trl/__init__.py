"""trainer "trl": TRL's GRPOTrainer on recipe's bridge. See docs/trl.md."""
