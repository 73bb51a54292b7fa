"""The exceptions of Shoal."""


class SpecError(ValueError):
    """A value that the user gave is wrong. The message names the value and the cure; the CLI exits with 2."""


class StageError(RuntimeError):
    """A stage of a round failed. The message names the stage, the client and the round."""


class DeclinedError(Exception):
    """A client cannot do what it is asked to. The message is recorded as the reason; the run continues."""


class PacketError(ValueError):
    """Bytes that were received are not a packet. The message says what is wrong with them."""


def one_line(error: BaseException) -> str:
    """What an error of another library says, short enough for a line."""
    return f"{type(error).__name__}: {error}".split("\n")[0][:200]
