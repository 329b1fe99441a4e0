"""The `ltzd` command: `run`, `dev`, and the commands of operators and of the REGISTRAR.

Begin with `main`, which has every command's name and options. Commands of one group are a package
(`brand`, `event`, `webhooks`, `wallets`, `offers`, `books`, `deploy`), each with its names and
options in `commands` or `command`. `targets` and `chain_targets` find the database and the node,
`output` prints, `tables` fits tables into terminals. A command's module is imported only when the
command runs.
"""
