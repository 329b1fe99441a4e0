"""Rules of the event handler: what an event earns, and the limits of its rule and of its brand.

Begin with `claims`. `brand_limits` has the limits that a brand sets for all its events.
"""
