"""The exceptions of Shoal."""


class SpecError(ValueError):
    """Invalid user input. The message names the value and how to fix it; the CLI exits with code 2."""


class StageError(RuntimeError):
    """A stage of a round failed. The message names the stage, the client and the round."""


class DeclinedError(Exception):
    """A client cannot do what it was asked to. The message is recorded as the reason; the run continues."""


class PacketError(ValueError):
    """Received bytes are not a valid packet. The message says what is wrong with them."""


def one_line(error: BaseException) -> str:
    """The message of another library's error, shortened to one line."""
    return f"{type(error).__name__}: {error}".split("\n")[0][:200]
