"""The fleet: the lanes of one process, as many as the settings and the registry name wallets.

`fleet` begins and ends lanes as wallets come and go; `slot` runs one lane, and restarts it after a
failure; `lane_gauges` are the metrics of all of them.
"""
