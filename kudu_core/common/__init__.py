"""What every floor above speaks: types, schemas, keys, partitions, predicates, time, threads."""
