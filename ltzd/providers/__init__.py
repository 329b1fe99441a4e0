"""Clients of the outside services."""
