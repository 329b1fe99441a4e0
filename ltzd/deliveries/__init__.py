"""Telling brands: webhooks that were written with their facts are sent until they arrive."""
