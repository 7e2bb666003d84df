"""What predicates and `set=` make of columns of lists, structs and maps: these put together, and computed."""
