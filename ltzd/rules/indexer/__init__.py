"""Rules of the indexer: the facts that it keeps of each contract, and what a node's head means.

`reorgs` compares the indexed chain with a node's, and `disputes` weighs the nodes' answers if they
differ; `finality` and `block_times` tell the chain's pace from the nodes' heads. `mint_facts` and
`contract_facts` are the decoded logs of ltzd's contracts; each has a `log_position`.
"""
