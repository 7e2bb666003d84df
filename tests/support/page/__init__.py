"""A table of which all numbers are known, reports of many tablets, and a browser that looks at pages."""
