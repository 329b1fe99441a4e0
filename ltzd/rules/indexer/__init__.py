"""Rules of the indexer: the facts that it keeps of each contract, and what a node's head means.

`reorgs` compares the indexed chain with a node's, and `disputes` decides from the nodes' answers if
they differ; `finality` finds the final block, and `block_times` measures the time between blocks.
`mint_facts` and `contract_facts` are the decoded logs of ltzd's contracts; each has a
`log_position`.
"""
