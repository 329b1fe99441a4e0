"""`ltzd books`: compares the database's books with the chain, and writes a brand's statement.

`command` has the options, `report` collects the figures and the disagreements, `views` shows them,
and `statement` writes the CSV file.
"""
