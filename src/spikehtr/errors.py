"""The one exception type that means 'the user can fix this', and what others' exceptions say."""


class SpikeHTRError(Exception):
    """Wrong use: the message says what is wrong and what to do. The command line prints it alone and exits with 2."""


def reason_of(error: BaseException) -> str:
    """What an exception of other software says, in a line; its name where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
