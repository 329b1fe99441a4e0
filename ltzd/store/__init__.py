"""PostgreSQL: one module per record."""
