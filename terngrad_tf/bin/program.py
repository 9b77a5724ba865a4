"""How each program parses its flags, reports errors and ends."""

import os
import sys

from absl import flags

from slim_data import DataError, legacy_flags, quiet
from terngrad_tf.bin import supervisor

STATUS_DIVERGED = 1
STATUS_ERROR = 2
STATUS_PEER = 3
STATUS_INTERRUPTED = 130


def run(description, define_flags, main, argv, module=None):
    """Parses flags and calls a program's main function.

    A wrong flag, folder or file is one line on standard error. `--help` prints the flags.

    Args:
        description: what the program does, for `--help`.
        define_flags: function that defines the program's flags in an `absl.flags.FlagValues`.
        main: function of the parsed `FlagValues`.
        argv: list of str, the program's name first.
        module: name under which --max_restarts, a flag of the program, starts it again. Default:
            the program has no such flag.

    Returns:
        The exit status: 0, 2 for what the user can mend, 1 where training diverged, 3 where another
        host of the cluster failed or is gone, 130 after Ctrl-C; 128 and the signal's number where
        a signal ended the process that --max_restarts started.
    """
    name = os.path.splitext(os.path.basename(argv[0]))[0]
    values = flags.FlagValues()
    define_flags(values)
    flags.DEFINE_bool("help", False, "Show this text.", short_name="h", flag_values=values)
    try:
        rest = values(legacy_flags.rewrite(argv, values))[1:]
        if rest:
            raise flags.Error(f"flags start with --. Received: {rest[0]!r}")
    except flags.Error as error:
        return _fail(name, error, STATUS_ERROR)
    if values.help:
        print(f"{name}: {description}\n\nFlags:\n{values.get_help()}")
        return 0
    if module is not None and values.max_restarts:
        return supervisor.supervise(
            [sys.executable, "-m", module, *argv[1:], "--max_restarts=0"],
            values.max_restarts,
            {STATUS_PEER: "another worker ended or is out of reach"},
            lambda line: print(f"{name}: {line}", file=sys.stderr, flush=True),
        )
    # Whatever the user's Keras is set to otherwise.
    os.environ["KERAS_BACKEND"] = "tensorflow"
    try:
        # Imported only now, so that --help and a mistyped flag do not wait for TensorFlow.
        with quiet.stderr_held_back():
            from terngrad_tf.distribute import PeerError
            from terngrad_tf.training.errors import DivergedError, UserError
        try:
            main(values)
        except (UserError, DataError) as error:
            return _fail(name, error, STATUS_ERROR)
        except DivergedError as error:
            return _fail(name, error, STATUS_DIVERGED)
        except PeerError as error:
            return _fail(name, error, STATUS_PEER)
        except RuntimeError as error:
            # What TensorFlow makes of Ctrl-C where it comes while another error is raised.
            if "REPLACED BY KeyboardInterrupt" not in str(error):
                raise
            raise KeyboardInterrupt from error
    except KeyboardInterrupt:
        return _fail(name, "interrupted; the same command goes on", STATUS_INTERRUPTED)
    return 0


def _fail(name, error, status):
    print(f"{name}: error: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
    return status
