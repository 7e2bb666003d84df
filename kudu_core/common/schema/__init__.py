"""Schemas: columns with ids, the primary key, changes, the codec of their rows."""
