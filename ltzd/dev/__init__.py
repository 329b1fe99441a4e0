"""Everything real on one machine: services, chain, sandbox and demo data."""
