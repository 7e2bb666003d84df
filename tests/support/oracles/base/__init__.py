"""What the kernels of ``_ext.base`` mean, in plain Python."""
