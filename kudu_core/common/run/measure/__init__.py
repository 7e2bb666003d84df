"""How long things take, and long work that tells how far it is."""
