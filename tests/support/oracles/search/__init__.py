"""What the kernels of ``_ext.search`` mean, in plain Python."""
