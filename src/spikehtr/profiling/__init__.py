"""What the network costs and how it fires, measured by hooks that leave the model untouched."""
