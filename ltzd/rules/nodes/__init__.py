"""Rules of the nodes that ltzd talks to: which one to ask and when to leave one alone; how much to
ask for at once, and how often.

Sizes and rates are learned per node from its refusals. The package knows no node's wording: the
package `ltzd/chain/node` turns a node's refusal into one of the types here.
"""
