"""Package of a test."""
