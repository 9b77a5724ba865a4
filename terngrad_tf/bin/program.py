"""How each program parses its flags, reports errors and ends."""

import os
import sys

from absl import flags

STATUS_ERROR = 2
STATUS_DIVERGED = 1
STATUS_INTERRUPTED = 130


def run(description, define_flags, main, argv):
    """Parses flags and calls a program's main function.

    A wrong flag, folder or file is one line on standard error. `--help` prints the flags.

    Args:
        description: what the program does, for `--help`.
        define_flags: function that defines the program's flags in an `absl.flags.FlagValues`.
        main: function of the parsed `FlagValues`.
        argv: list of str, the program's name first.

    Returns:
        The exit status: 0, 2 for what the user can mend, 1 where training diverged, 130 after
        Ctrl-C.
    """
    name = os.path.splitext(os.path.basename(argv[0]))[0]
    values = flags.FlagValues()
    define_flags(values)
    flags.DEFINE_bool("help", False, "Show this text.", short_name="h", flag_values=values)
    try:
        _parse(values, argv)
    except flags.Error as error:
        return _fail(name, error)
    if values.help:
        print(f"{name}: {description}\n\nFlags:\n{values.get_help()}")
        return 0

    # Set before TensorFlow starts: its notes would hide the one line that matters.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # Imported only now, so that --help and a mistyped flag do not wait for TensorFlow.
    from slim_data import DataError
    from terngrad_tf.training.errors import DivergedError, UserError

    try:
        main(values)
    except (UserError, DataError) as error:
        return _fail(name, error)
    except DivergedError as error:
        return _fail(name, error, STATUS_DIVERGED)
    except KeyboardInterrupt:
        return _fail(name, "interrupted; run the same command to go on", STATUS_INTERRUPTED)
    return 0


def _parse(values, argv):
    # Not at the top: importing slim_data costs TensorFlow.
    from slim_data import legacy_flags

    arguments = legacy_flags.rewrite(argv, values)
    rest = values(arguments)[1:]
    if rest:
        raise flags.Error(f"Flags start with --. Received: {rest[0]!r}")


def _fail(name, error, status=STATUS_ERROR):
    print(f"{name}: error: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
    return status
