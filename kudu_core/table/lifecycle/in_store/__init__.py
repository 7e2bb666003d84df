"""Tables in object stores: made, opened, kept in order (docs/protocol-objects.md)."""
