"""Compiled code: kernels over buffers, and the compiled path of one row.

A kernel is a ``def`` that checks its arguments and one body that runs without the interpreter's lock.  What
it works on has one shape everywhere.  A column of fixed width is its little-endian bytes, (n x width,) uint8.
A column of variable width is int32 offsets and bytes.  Validity is a bitmap in which 1 means present.
Encoded keys are int64 offsets and bytes whose order is the order of the keys.  Stored bytes are never
believed: a kernel that meets broken ones raises, and stays within its buffers.

``row`` is something else: compiled classes that hold Python objects and keep the interpreter's lock.
"""
