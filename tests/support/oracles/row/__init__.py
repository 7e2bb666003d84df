"""What the kernels of ``_ext.row`` mean, in plain Python."""
