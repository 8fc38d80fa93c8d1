"""From frame logits to text."""
