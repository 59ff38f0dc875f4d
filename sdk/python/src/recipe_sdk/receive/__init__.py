"""Weights that arrive: the side of an inference engine, whatever engine it is."""
