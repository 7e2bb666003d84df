"""What a table is made of, and whether it is sound."""
