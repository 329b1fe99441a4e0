"""Follows one chain into the store and undoes reorgs.

`follower` moves the cursor, block range by block range; `reading` fetches blocks and logs from the
node and checks that they are complete; `contracts` is the registry of the contracts that are
followed. To follow another contract, add a module for it and a line to that registry. Begin with
`follower.py`.
"""
