"""The settings: one TOML file and `LTZD_` environment variables.

Begin with `settings`, which has `read_settings` and the sections. `accounts`, `identity` and
`listener` hold further sections, `value_types` the types of values with their checks, and
`inline_secrets` finds secrets that stand in the file itself.
"""
