"""The operator wallet: signs, publishes and confirms what the store has queued."""
