"""Runs over millions of pages on a Ray cluster, or on one machine by a Ray of its own (extra `ray`)."""
