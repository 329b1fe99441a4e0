"""The four contracts: LTZ, PerkNFT, PointsSale and BusinessEscrow.

Each has a module that encodes its calls by hand (`abi_words`) and decodes its answers and logs.
`reverts` turns revert data into text for any of them, `runtime_code` compares deployed code with
the compiled code in `ltzd/chain/compiled/`, and `offers` holds the REGISTRAR's reads and calls.
Begin with `ltz.py`.
"""
