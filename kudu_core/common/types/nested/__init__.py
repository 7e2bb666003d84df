"""Types of columns with lists, structs and maps, and how their values are taken apart and put together."""
