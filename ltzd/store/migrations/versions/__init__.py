"""One revision a file, each running the SQL file of its number."""
