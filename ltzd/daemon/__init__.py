"""Reads settings, builds everything, runs and stops it."""
