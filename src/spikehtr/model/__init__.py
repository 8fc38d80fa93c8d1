"""The paper's network, section by section, in plain PyTorch: the reference that every fast path is tested against."""
