"""What tests send to other processes."""
