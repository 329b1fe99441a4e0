"""HTTP for the clients of all providers.

`http_client` opens connections to a service that the settings name, bounds its answers and maps its
failures; `retries` repeats a request that may succeed later. `guarded_http` is for URLs that
customers chose: it refuses addresses that are not on the public internet (`guarded_connector`,
`public_addresses`), and looks up their names (`name_lookups`). `json_bodies` decodes JSON of
unknown depth. Begin with `http_client`.
"""
