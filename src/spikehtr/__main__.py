"""`python -m spikehtr`."""

from spikehtr.cli import main

main()
