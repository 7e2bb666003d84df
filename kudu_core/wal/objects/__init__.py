"""The log of a table in an object store: numbered objects, put only if absent (protocol B1 to B5)."""
