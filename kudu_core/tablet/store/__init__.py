"""One tablet: its manifest, its records, and how changes are laid into it."""
