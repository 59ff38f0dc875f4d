"""`environment "gymnasium"`: environments of Gymnasium, played in text."""
