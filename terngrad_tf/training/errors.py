"""Errors that programs report in one line."""

import contextlib


class UserError(ValueError):
    """A wrong argument, folder or file; the message is one line that says what to change."""


class DivergedError(RuntimeError):
    """Training met a loss or weights that are not finite."""

    def __init__(self, what, step, checkpoint):
        kept = f"last good checkpoint: {checkpoint}" if checkpoint else "no checkpoint yet"
        super().__init__(
            f"Model diverged at step {step}: {what} is not finite ({kept}). "
            "A lower learning rate may help"
        )
        self.step = step
        self.checkpoint = checkpoint


@contextlib.contextmanager
def as_user_error():
    """Turns a ValueError of the code inside, which checks what a user gave, into a UserError."""
    try:
        yield
    except UserError:
        raise
    except ValueError as error:
        raise UserError(" ".join(str(error).split())) from error
