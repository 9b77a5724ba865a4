"""Asynchronous training with parameter servers: `train_async` and `serve_parameters`."""

import contextlib
import dataclasses
import secrets

import tensorflow as tf

import slim_data
from terngrad_tf.distribute import PeerError, TernaryAllReduce
from terngrad_tf.distribute import parameter_server_process as process
from terngrad_tf.distribute.handshake import code_metadata
from terngrad_tf.distribute.parameter_server import ParameterServerCluster
from terngrad_tf.distribute.parameter_server_variables import ServedModel
from terngrad_tf.training import (
    async_log,
    async_loop,
    async_step,
    callbacks,
    data,
    session,
    trainer,
)
from terngrad_tf.training.errors import DivergedError, UserError, as_user_error
from terngrad_tf.training.run_folder import RunFolder


def serve_parameters(cluster_resolver, *, start_timeout=600):
    """Runs a parameter server until the chief of the run, worker 0, ends.

    Args:
        cluster_resolver: as for `train_async`, its task a "ps".
        start_timeout: seconds to wait for the chief. Default 600.

    Raises:
        UserError: the cluster has no worker or no parameter server.
        PeerError: the chief did not start, is lost or stopped with an error.
    """
    with as_user_error():
        process.serve(cluster_resolver, {"code": code_metadata()}, start_timeout=start_timeout)


def train_async(options, cluster_resolver, *, start_timeout=600):
    """Trains asynchronously: each worker's gradients are applied as soon as they arrive.

    Variables live on parameter servers. A worker pulls them as floats, computes the gradients of
    its own batch and pushes them as ternary codes with scales of its own; the servers decode them
    and take a step of the optimizer. Each push is a step: the step number, learning rates and
    `max_steps` count the pushes of all workers together, and `batch_size` is one worker's.

    Worker 0 is the chief: it schedules the steps, keeps `train_dir` and prints the log lines of
    all workers. It computes as the others do. Every worker reads all files of its own `data_dir`,
    in an order that is new at each start. Runs cannot be repeated bit for bit; a run that was
    stopped goes on from its newest checkpoint.

    A worker that is lost is done without, and taken back when it is started again. Where the chief
    or a server is lost, all end.

    Args:
        options: `TrainOptions`; all workers' must agree but for folders and devices.
        cluster_resolver: a `tf.distribute.cluster_resolver.ClusterResolver` with the jobs "worker"
            and "ps", its task a "worker".
        start_timeout: seconds to wait for the other processes. Default 600.

    Returns:
        A `trainer.TrainResult` on the chief, its traffic a `PushTraffic`; None on other workers.

    Raises:
        UserError: an option, the data or the folder does not fit.
        slim_data.DataError: the data is missing or damaged.
        DivergedError: the loss or a weight is not finite; the last good checkpoint is kept.
        PeerError: another process failed, is gone or was started differently.
    """
    _check(options)
    with as_user_error():
        # All workers make batches for the network, so all look which one it is.
        options = trainer.resolved(options, trainer.find_pretrained(options))
        tasks = process.cluster_tasks(cluster_resolver)
    own = session.describe(options)
    place = options.dataset_name, options.data_dir, options.subset
    metadata = {
        "code": code_metadata(),
        "run": options.facts(),
        "own": {
            "fingerprint": str(tasks.index) if options.benchmark_mode else data.fingerprint(*place),
            "num_examples": own.num_examples,
        },
    }
    order = dataclasses.replace(own, seed_offset=secrets.randbits(32))
    batches = session.examples(options, 0, order)
    timeout = {"start_timeout": start_timeout}
    if cluster_resolver.task_id != 0:
        process.serve(cluster_resolver, metadata, batches, **timeout)
        return None
    cluster = ParameterServerCluster(cluster_resolver, metadata, batches, **timeout)
    try:
        with slim_data.explained(*place), cluster.errors():
            result = _lead(options, cluster, own)
    except BaseException as error:
        cluster.end(" ".join(str(error).split()) or type(error).__name__)
        raise
    cluster.end()
    return result


def _check(options):
    """Raises UserError for options that asynchronous training does not know."""
    for name, wanted, why in (
        ("num_nodes", 1, "each process is one worker"),
        ("mixed_precision", False, "the servers scale no losses"),
        ("loss_scale", None, "the servers scale no losses"),
        ("epochs", None, "steps are counted"),
        ("save_epochs", None, "steps are counted"),
        ("wire", "auto", "codes go to parameter servers"),
        ("snapshot_per_epoch", None, "weights between two pushes belong to no step"),
        ("snapshot_every_steps", None, "weights between two pushes belong to no step"),
    ):
        value = getattr(options, name)
        if value != wanted:
            raise UserError(
                f"`{name}` must be {wanted!r} in asynchronous training: {why}. "
                f"Received: {name}={value!r}"
            )


def _lead(options, cluster, own):
    cluster.compare()
    found = [one["own"] for one in cluster.metadata[: cluster.num_workers]]
    dataset = own
    if not options.benchmark_mode and cluster.num_workers > 1:
        fingerprints = [one["fingerprint"] for one in found]
        counts = [one["num_examples"] for one in found]
        dataset = data.among_processes(own, fingerprints, counts, 0)
    pretrained_run = trainer.find_pretrained(options)
    trainer.check_pretrained(options, dataset, pretrained_run)
    with as_user_error():
        quantization = TernaryAllReduce(**session.gradient_options(options)).quantization
        model, learning_rate = trainer.build(options, dataset)
        served = ServedModel(
            model,
            model.optimizer,
            quantization,
            cluster.server_devices,
            cluster.num_workers,
        )
    folder = RunFolder(
        options.train_dir,
        {**options.identity(), "num_hosts": cluster.num_workers, "asynchronous": True},
        max_steps=options.max_steps,
        model=trainer.model_metadata(options, dataset),
    )
    with contextlib.closing(folder):
        checkpoint = tf.train.Checkpoint(
            model=model, random=session.random_states(model), optimizer=model.optimizer
        )
        manager = session.make_manager(checkpoint, options, folder)
        first_step = session.resume(manager)
        if first_step is None:
            first_step = trainer.start(options, model, checkpoint, pretrained_run)
        if first_step < options.max_steps:
            served.upload()
            _train(options, cluster, dataset, model, learning_rate, served, manager, first_step)
        newest = manager.latest_checkpoint
        step = session.step_of(newest)
        callbacks.log(f"finished at step {step}, saved as {newest}")
        return trainer.TrainResult(step, newest, served.traffic)


def _train(options, cluster, dataset, model, learning_rate, served, manager, first_step):
    """Schedules the steps that are missing; saves and tells meanwhile."""
    step_function = async_step.make_step(options, model, served, exact=False)
    exact_function = async_step.make_step(options, model, served, exact=True)

    def is_float(step):
        return options.floating_grad_epoch and session.is_float_step(
            options, dataset.num_examples, step
        )

    def function_of(step):
        return exact_function if is_float(step) else step_function

    def traffic_of(step):
        return served.traffic.as_float32() if is_float(step) else served.traffic

    # A step that a lost worker had begun may count twice, so the next one to do has a number of its
    # own.
    steps = async_loop.StepQueue(cluster)
    writer = tf.summary.create_file_writer(str(manager.directory))
    log_every = callbacks.log_interval(cluster.tasks)
    log = async_log.AsyncLog(
        options.batch_size,
        log_every,
        session.summary_rule(options, log_every),
        writer,
        learning_rate,
        traffic_of,
    )
    due = session.saving_rule(options)
    saver = callbacks.SaveCheckpoints(first_step, manager, lambda step: True, options.max_steps)
    saver.set_model(model)
    next_step = step = first_step
    saving = False
    with _closing(writer):
        while next_step < options.max_steps or steps.num_open:
            while next_step < options.max_steps and not steps.is_full and not saving:
                steps.schedule(function_of(next_step))
                next_step += 1
            if (result := steps.next()) is not None:
                step = max(step, int(result["step"]))
                if not tf.math.is_finite(result["total_loss"]):
                    raise DivergedError("the loss", step, manager.latest_checkpoint)
                log.add(result)
                saving = saving or due(step)
            if saving and not steps.num_open:
                _save(model, served, saver, writer, step)
                saving = False
        log.write(step)
        if session.step_of(manager.latest_checkpoint or "-0") != step:
            _save(model, served, saver, writer, step)


@contextlib.contextmanager
def _closing(writer):
    """Closes a summary writer, but where a process is lost: TensorFlow might wait for that."""
    try:
        yield
    except PeerError:
        raise
    except BaseException:
        writer.close()
        raise
    writer.close()


def _save(model, served, saver, writer, step):
    """Saves while no step runs."""
    served.download()
    saver.step = step
    saver.on_step_end({})
    with writer.as_default():
        for variable in model.trainable_variables:
            tf.summary.histogram(variable.path, variable.value, step=step)
