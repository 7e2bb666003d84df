"""What every rowset says: its entry in a manifest, and its rows at a snapshot."""
