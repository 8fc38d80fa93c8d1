"""The CPU engine's compiled functions: `native/*.c`, built as `_native` when the package is installed."""
