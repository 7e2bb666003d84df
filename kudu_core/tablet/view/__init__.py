"""What a tablet is made of at one moment, and where keys live in it."""
