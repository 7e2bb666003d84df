"""The compiled path of one row: classes that hold Python objects, with the GIL."""
