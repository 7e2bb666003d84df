"""Tables as sources and sinks of streams."""
