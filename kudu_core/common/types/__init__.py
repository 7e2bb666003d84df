"""Types of columns, and single values of them."""
