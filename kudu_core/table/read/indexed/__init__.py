"""Which indexes a scan may use."""
