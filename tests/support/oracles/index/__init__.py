"""What the kernels of ``_ext.index`` mean, in plain Python."""
