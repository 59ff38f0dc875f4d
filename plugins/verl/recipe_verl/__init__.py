"""Trains with verl's model engine on batches of recipe: without Ray's cluster, verl's rollout and its data loaders."""
