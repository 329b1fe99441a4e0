"""The running program: reads the settings, builds every component, runs the roles, stops them.

Begin with `main`, which runs the roles in one task group. `assembly` builds the components in the
order of the layers, with `operator`, `indexer` and `deliveries` for these roles, and
`identity_provider` and `site_services` for parts of HTTP; `surfaces` connects the HTTP applications
to them. `settings` reads the configuration, `keys` and
`certificates` read key files, and `logs` formats every log line.
"""
