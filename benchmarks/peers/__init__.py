"""Other programs that do the same work, for comparison: each has a folder with its project."""
