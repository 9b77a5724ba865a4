"""Flags of the training and evaluation programs; each becomes one field of the options."""

from absl import flags


def define_shared(values):
    """Defines the flags that training and evaluation have in common.

    Args:
        values: `absl.flags.FlagValues` to define them in.
    """
    string(values, "data_dir", "/tmp/mydata", "Folder with the TFRecords.")
    integer(values, "num_readers", 4, "Files read in parallel.")
    integer(
        values,
        "num_preprocess_threads",
        None,
        "Images decoded and distorted in parallel. Default: twice as many as the CPU has cores, "
        "where TernGrad had 4 a worker: images come in their order, and fewer leave cores idle.",
    )
    boolean(
        values,
        "skip_corrupt_records",
        False,
        "Leave out records that cannot be read, after telling which. Default: they are an error.",
    )


def define_workers(values):
    """Defines the flags of the programs that train: how many workers, and where they run.

    Args:
        values: `absl.flags.FlagValues` to define them in.
    """
    integer(
        values,
        "num_gpus",
        None,
        "GPUs the workers run on, 0 for the CPU. Default: all there are, where TernGrad had 1: "
        "--num_nodes alone spreads workers over them. Where there is none, workers run on the CPU.",
    )
    integer(
        values,
        "num_nodes",
        -1,
        "Workers; worker i runs on GPU i modulo --num_gpus. -1: --num_gpus, or 1.",
    )


def options(values, options_class):
    """Makes an options object of the flags that are its fields.

    Args:
        values: parsed `absl.flags.FlagValues`.
        options_class: `TrainOptions` or `EvalOptions`.
    """
    fields = options_class.__dataclass_fields__
    return options_class(**{name: values[name].value for name in values if name in fields})


def string(values, name, default, text):
    """Defines a flag whose value is text."""
    flags.DEFINE_string(name, default, text, flag_values=values)


def integer(values, name, default, text, **bounds):
    """Defines a flag whose value is an integer, with `lower_bound` and `upper_bound` if given."""
    flags.DEFINE_integer(name, default, text, flag_values=values, **bounds)


def number(values, name, default, text):
    """Defines a flag whose value is a float."""
    flags.DEFINE_float(name, default, text, flag_values=values)


def boolean(values, name, default, text):
    """Defines a flag that is true or false."""
    flags.DEFINE_bool(name, default, text, flag_values=values)
