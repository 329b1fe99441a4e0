"""The `ltzd` command: `run`, `dev`, and the commands of operators and of the REGISTRAR.

Begin with `main`, which has every command's name. The commands of one group are a package with the
group's name, and its module `commands` or `command` has their names and options; `offers` has those
of `ltzd collection`, `item` and `business`, and `checks` runs `ltzd check` and `doctor`. `targets`
and `chain_targets` find the database and the node, `output` prints, `tables` fits tables into
terminals. A command's module is imported only when the command runs.
"""
