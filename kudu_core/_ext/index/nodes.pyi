# What is here is for other kernels alone.
