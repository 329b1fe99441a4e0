"""Rules of the indexer: the facts that it keeps of each contract, and what a node's head means.

`reorgs` compares the indexed chain with a node's. `mint_facts` and `contract_facts` are the decoded
logs of ltzd's contracts; each has a `log_position`.
"""
