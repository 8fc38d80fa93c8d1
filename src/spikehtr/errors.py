"""The one exception type that means 'the user can fix this'."""


class SpikeHTRError(Exception):
    """Wrong use: the message says what is wrong and what to do. The command line prints it alone and exits with 2."""
