"""One thing a caller may ask for: read facts, apply a rule, write."""
