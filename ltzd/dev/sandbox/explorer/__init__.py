"""A small block explorer for the dev chain.

`pages` handles requests, `node_reads` asks the node, and `views` and `reward_logs` turn the answers
into HTML. Begin with `pages`.
"""
