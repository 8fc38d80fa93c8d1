"""Training: optimiser, schedule, averaged weights, checkpoints, the loop. No model code."""
