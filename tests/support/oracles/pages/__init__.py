"""What the kernels of ``_ext.pages`` mean, in plain Python."""
