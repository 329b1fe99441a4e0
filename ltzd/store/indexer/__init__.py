"""Facts read from the chain, and the rows that are derived from them.

`chains` holds the cursor and the blocks. `mint_facts`, `perk_facts`, `sale_facts` and
`escrow_facts` insert and undo one contract's facts each; `tokens` and `collections` are rebuilt
from them, and `undo` undoes blocks of all contracts. Begin with `chains.py`.
"""
