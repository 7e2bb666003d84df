"""Files of sections, their pages, and the cache of pages."""
