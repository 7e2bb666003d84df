"""Which rows have outlived the table's ``ttl``, and how reads are kept from them (docs/ttl.md)."""
