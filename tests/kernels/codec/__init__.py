"""Tests of the kernels of ``_ext.codec``."""
