"""``.rows`` and ``.delta`` files as wholes."""
