"""JSON-RPC nodes, contract encoding, signing and deployment.

`node` talks to one node; `contracts` encodes calls of the four contracts and decodes their answers
and logs; `relayer` decodes and checks what users ask to have relayed; `deployment` deploys the
contracts and sends single transactions of wallets whose keys lie on no server. `signing` signs
transactions and `typed_data` hashes EIP-712 messages. Begin with `node/node.py`.
"""
