"""What TABLE says, and how a record changes it."""
