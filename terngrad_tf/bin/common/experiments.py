"""The programs that train and evaluate, one pair for each data set, and their differences."""

import atexit
import dataclasses
import functools
import os
import sys
from typing import Any

from terngrad_tf.bin.common import (
    distributed_flags,
    flags,
    program,
    run_reports,
    tf1_flags,
    train_flags,
)
from terngrad_tf.launcher import supervisor
from terngrad_tf.training.configs.eval_config import EvalConfig


@dataclasses.dataclass(frozen=True)
class Experiment:
    """Defaults of a data set's programs: title, --net of training, --subset of evaluation."""

    title: str
    net: str
    eval_subset: str


EXPERIMENTS = {
    "mnist": Experiment("MNIST", "lenet", "test"),
    "cifar10": Experiment("CIFAR-10", "cifar10_alexnet", "test"),
    "imagenet": Experiment("ImageNet", "alexnet", "validation"),
    "flowers": Experiment("flower", "alexnet", "validation"),
}


def training(dataset_name: str) -> program.Program:
    """Returns the program that trains on a data set, one of `EXPERIMENTS`."""
    experiment = EXPERIMENTS[dataset_name]
    return program.Program(
        f"Trains a network on {experiment.title} images with ternary or float gradients.",
        functools.partial(train_flags.define, dataset_name=dataset_name, net=experiment.net),
        _train,
    )


def distributed_training(dataset_name: str) -> program.Program:
    """Returns the program that trains with a process on each of several hosts."""
    experiment = EXPERIMENTS[dataset_name]
    return program.Program(
        f"Trains a network on {experiment.title} images with a process on each of several hosts.",
        functools.partial(distributed_flags.define, dataset_name=dataset_name, net=experiment.net),
        _train_distributed,
        f"terngrad_tf.bin.{dataset_name}_distributed_train",
    )


def evaluation(dataset_name: str) -> program.Program:
    """Returns the program that evaluates runs on a data set, one of `EXPERIMENTS`."""
    return program.Program(
        f"Evaluates the checkpoints of a run of {dataset_name}_train, once or as they appear.",
        functools.partial(_define_evaluation, subset=EXPERIMENTS[dataset_name].eval_subset),
        _evaluate,
    )


def _define_evaluation(values, subset):
    # Folders of TernGrad's commands.
    folders: dict[str, Any] = {
        "checkpoint_dir": train_flags.FOLDERS["train_dir"],
        "eval_dir": "/tmp/dataset_eval",
    }
    data_dir = train_flags.FOLDERS["data_dir"]
    flags.define(values, EvalConfig, data_dir=data_dir, subset=subset, **folders)
    flags.define(values, tf1_flags.EvaluationFlags)


def _train(values):
    from terngrad_tf import training

    tf1_flags.log_device_placement(values)
    config = tf1_flags.train_config(values)
    training.train(config)
    run_reports.write_beside(config.train_dir)


def _train_distributed(values):
    from terngrad_tf.training.log import log

    tf1_flags.log_device_placement(values)
    own = flags.config_of(values, distributed_flags.DistributedFlags)
    cluster = own.resolver()
    for line in distributed_flags.log_lines(values, cluster):
        log(line)
    if own.async_training:
        _train_async(values, own, cluster)
    elif cluster.task_type == "ps":
        print(
            "Synchronous training needs no parameter server: the weights live on the workers.",
            flush=True,
        )
    else:
        _train_sync(values, own, cluster)


def _train_async(values, own, cluster):
    from terngrad_tf import parameter_server
    from terngrad_tf.distribute import PeerError

    meeting = own.arguments()
    try:
        if cluster.task_type == "ps":
            parameter_server.serve_parameters(cluster, **meeting)
            return
        config = distributed_flags.async_config(values)
        if parameter_server.train_async(config, cluster, **meeting) is not None:
            run_reports.write_beside(config.train_dir)
    except PeerError:
        atexit.register(_leave)
        raise


def _train_sync(values, own, cluster):
    from terngrad_tf import training
    from terngrad_tf.training.log import log

    meeting = own.arguments()
    config, workers = distributed_flags.sync_config(values, cluster)
    membership = own.join(workers, config, **meeting)
    if membership is not None:
        log(membership.describe())
    result = training.train(config, membership, cluster_resolver=workers, **meeting)
    if result.is_chief:
        run_reports.write_beside(config.train_dir)


def _leave():
    """Ends this process before TensorFlow, which might wait for a lost process."""
    sys.stdout.flush()
    os._exit(supervisor.STATUS_PEER)


def _evaluate(values):
    from terngrad_tf import training

    training.evaluate(tf1_flags.eval_config(values))
