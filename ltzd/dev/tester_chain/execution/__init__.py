"""Transactions, blocks and their execution by py-evm.

`transaction` decodes and signs, `block_builder` fills a block, `evm` and `state` run code over one
state database, and `computation` makes py-evm's common opcodes faster. `overrides` and `simulation`
assume other states and blocks; `proofs` and `state_dump` read states as a whole. `rlp_codec` and
`ordered_trie` encode headers. Begin with `evm`.
"""
