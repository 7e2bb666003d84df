"""What the kernels of ``_ext.changes`` mean, in plain Python."""
