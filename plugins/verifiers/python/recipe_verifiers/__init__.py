"""`environment "verifiers"`: tasksets and environments of Prime Intellect's verifiers."""
