"""Proofs that need no trust in a node: a header proves itself by its hash, and its receipts root
proves the receipts of its block. A chain that encodes headers or receipts in its own way proves
nothing: its blocks are unproved, never false.
"""
