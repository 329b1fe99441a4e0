"""The books: figures by brand, statements, and the reconciliation of the database with itself.

`figures` adds up, `reconciliation` and `site_reconciliation` list the rows that contradict each
other, and `statements` lists a brand's rewards line by line. Begin with `figures.py`.
"""
