"""What the kernels of ``_ext.codec`` mean, in plain Python."""
