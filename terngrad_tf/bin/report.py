"""Writes a report of runs as one HTML file, which compares several runs.

Example:
    terngrad report /tmp/ternary /tmp/float --output report.html
"""

import os

from terngrad_tf.bin.common import flags, program, run_reports
from terngrad_tf.training.configs import checks
from terngrad_tf.training.configs.config import Config, configuration, option

_DESCRIPTION = (
    "terngrad report RUN [RUN...] --output FILE writes a report of runs, each the --train_dir of "
    "one, as an HTML file that needs no network: configuration, curves, bytes, times, codes, "
    "checkpoints, commands. Several runs are compared."
)


@configuration
class ReportConfig(Config):
    """Options of the program besides the runs."""

    output: str = option(
        "report.html", "HTML file to write; an existing file is replaced.", checks.path
    )
    eval_dir: str = option(
        "",
        "Folders with the --eval_dir of each run's evaluation, separated by commas. Folders named "
        "eval... within a run, or beside it with its name and _eval..., are found automatically.",
    )


def _define(values):
    flags.define(values, ReportConfig)


def _main(values, folders):
    from terngrad_tf import reports
    from terngrad_tf.training import UserError

    if not folders:
        raise UserError("RUN must be given, the --train_dir of a run: terngrad report RUN [RUN...]")
    given = values.eval_dir.split(",") if values.eval_dir else ()
    eval_dirs = list(map(os.path.expanduser, given))
    if eval_dirs and len(eval_dirs) != len(folders):
        raise UserError(
            f"`eval_dir` must name a folder for each RUN, {len(folders)}. "
            f"Received: eval_dir={values.eval_dir!r}"
        )
    next_steps = run_reports.next_steps
    output = flags.config_of(values, ReportConfig).output
    path = reports.write(folders, output, eval_dirs=eval_dirs, next_steps=next_steps)
    print(f"Report: {path}")


PROGRAM = program.Program(_DESCRIPTION, _define, _main, takes_words=True)
define_flags, main, run = PROGRAM.define_flags, PROGRAM.main, PROGRAM.run

if __name__ == "__main__":
    run()
