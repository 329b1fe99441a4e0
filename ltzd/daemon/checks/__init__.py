"""Everything that is checked before ltzd runs, once for all commands.

`installation.py` is the list. `ltzd run` refuses to start with all its faults, `ltzd check` prints
it and changes nothing, and `ltzd doctor` adds `doctor.py`, which also examines a running system.
"""
