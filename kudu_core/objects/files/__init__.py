"""The data files of a table as objects: what is read of them, what is asked for before, what is kept near."""
