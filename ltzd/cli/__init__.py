"""The `ltzd` command."""
