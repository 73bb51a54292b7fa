"""The ways in which Shoal fails: the user can cure one, a developer another, and the third is no failure."""


class SpecError(ValueError):
    """Something the user gave is wrong. The message names the value and the cure; the CLI exits with 2."""


class StageError(RuntimeError):
    """Something broke inside a stage of a round. The message names the stage, the client and the round."""


class DeclinedError(Exception):
    """A client cannot do what it is asked. The message, which is the reason, is recorded; the run goes on."""
