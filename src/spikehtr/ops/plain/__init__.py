"""Every operator in plain PyTorch: what it means, and what is traced, exported and compared with."""
