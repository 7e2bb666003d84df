"""The page of a table by its path, and over HTTP: live, to this machine, for reading alone.

``live_page`` keeps the table and what was last made of it; ``server`` answers requests with that.
"""
