"""Recognisers to compare with, in the same harness: same data, augmentation, loop, decoding and report."""
