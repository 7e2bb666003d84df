"""Parts of the walk of a change (``lifecycle/alter.py``)."""
