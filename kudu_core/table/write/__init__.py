"""From a call to a record: the door, and the walk through the log."""
