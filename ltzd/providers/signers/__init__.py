"""The services that sign for the operator's wallets: AWS KMS and web3signer.

Each is a `RemoteKey` of `ltzd/chain/remote_signing.py`, which verifies what they return. `calls`
bounds their requests in number and time and repeats them, `aws_credentials` finds the credentials
for AWS.
"""
