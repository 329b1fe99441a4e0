"""What should happen: pure decisions, no I/O and no clock."""
