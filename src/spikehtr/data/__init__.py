"""Lines in: geometry, readers, stores, batches."""
