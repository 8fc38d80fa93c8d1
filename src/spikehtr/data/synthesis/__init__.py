"""Synthetic handwriting at scale: texts, hands, paper, and a store of lines drawn by many processes."""
