"""Rules of the nodes that ltzd uses: which one to ask, and which not; how much to ask for at once,
and how often.

Sizes and rates are learned per node from its refusals. The package knows no node's wording: the
package `ltzd/chain/node` turns a node's refusal into one of the types here.
"""
