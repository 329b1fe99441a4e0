"""Accounts at OAuth providers, and the forms of their ids and usernames."""
