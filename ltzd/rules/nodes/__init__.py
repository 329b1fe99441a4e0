"""Rules of the nodes that ltzd talks to: which size and rate of requests each node accepts.

Sizes and rates are learned per node from its refusals. The package knows no node's wording: the
package `ltzd/chain/node` turns a node's refusal into one of the types here.
"""
