"""Prints the processes of a rank table on this machine, one per line, for scripts/rank_jobs.sh.

    python -m terngrad_tf.bin.jobs.local_ranks --rank_table_file rank_table_8pcs.json

prints "<rank> <device> <addresses of all processes>", such as "0 0 127.0.0.1:2222,127.0.0.1:2223".
"""

import sys
from collections.abc import Sequence

from slim_data.cli import help_arguments
from slim_data.common.errors import printable
from terngrad_tf.bin.common.cluster_flags import PORT
from terngrad_tf.distribute.cluster import rank_table


def main(argv: Sequence[str]) -> int:
    """Runs the program; `argv` is its command line. Returns the exit status."""
    parser = help_arguments.Parser(prog="local_ranks", description=__doc__.split("\n")[0])
    parser.add_argument("--rank_table_file", required=True, help="The table, a JSON file.")
    parser.add_argument(
        "--server_id",
        default="",
        help="server_id of this machine. Default: the only one, or the one with its address.",
    )
    parser.add_argument("--port", type=int, default=PORT, help="Port of a machine's first process.")
    values = parser.parse_args(argv[1:])
    try:
        devices = rank_table.read_rank_table(values.rank_table_file)
        ranks, reached = rank_table.on_this_machine(devices, values.server_id)
        hosts = ",".join(rank_table.addresses(reached, values.port))
    except OSError as error:
        return _fail(f"`rank_table_file` {values.rank_table_file}: {error.strerror}")
    except ValueError as error:
        return _fail(error)
    for rank in ranks:
        print(rank, devices[rank].device_id, hosts)
    return 0


def _fail(error):
    print(f"local_ranks: error: {printable(error)}", file=sys.stderr, flush=True)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv))
