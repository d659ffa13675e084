"""Errors a user can act on. Each message names the argument, what was expected, what arrived, what to try."""


class PyptoxError(ValueError):
    """Base of the errors that pyptox raises for bad input; the command line prints it and exits with ``exit_code``."""

    exit_code = 2


class KernelError(PyptoxError):
    """A kernel is written in a way that no reading can follow."""


class VerifierError(PyptoxError):
    """A configuration breaks a limit of the chip: a space overflows or a tile is too small."""
