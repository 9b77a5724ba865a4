"""Start of a benchmark's program."""

from absl import app


def run(main):
    """Parses the flags and calls `main()`; refuses arguments that are no flags."""

    def checked(argv):
        if len(argv) > 1:
            raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
        return main()

    app.run(checked)
