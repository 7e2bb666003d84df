"""Which maintenance is done, when and by whom."""
