"""One tablet's part of a bulk ingest."""
