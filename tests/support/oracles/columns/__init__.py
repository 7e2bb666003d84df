"""What the kernels of ``_ext.columns`` mean, in plain Python."""
