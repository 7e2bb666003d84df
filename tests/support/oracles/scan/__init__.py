"""What the kernels of ``_ext.scan`` mean, in plain Python."""
