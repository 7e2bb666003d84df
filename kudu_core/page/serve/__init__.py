"""Shows a table's page over HTTP, live, to this machine; it only reads.

``live_page`` keeps the table and what was last made of it; ``server`` answers requests with that.
"""
