"""The HTTP surfaces, their envelopes and the admin server."""
