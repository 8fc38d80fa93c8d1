"""Finding the lines of a page with a small convolutional network: maps of baselines, and lines made of them."""
