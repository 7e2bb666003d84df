"""What the kernels of ``_ext.keys`` mean, in plain Python."""
