"""Encryption at rest with the operator's master key.

`sealing` encrypts and decrypts brands' secrets and wallets' keys; `rotation` reseals every row
under a new master key. Begin with `sealing.py`.
"""
