"""What the kernels of ``_ext.ordered`` mean, in plain Python."""
