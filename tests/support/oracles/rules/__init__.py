"""What the kernels of ``_ext.rules`` mean, in plain Python."""
