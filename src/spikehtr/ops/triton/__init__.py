"""The operators by Triton kernels; `functions` has one of each name that `ops.plain` has."""
