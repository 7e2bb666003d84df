"""Commands that change rows, columns or whole tables."""
