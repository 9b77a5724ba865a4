"""Where Keras 3 leaves gaps under `tf.distribute`: its training loop, losses and seeds."""

import contextlib
import functools
import threading
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.tensorflow import trainer as keras_tf_trainer
from keras.src.losses import loss as keras_loss

from terngrad_tf.distribute.private.data.epochs import first_batch
from terngrad_tf.distribute.private.keras.loss_scale import note_scaled
from terngrad_tf.distribute.private.keras.step_results import (
    averaged,
    has_own_step,
    note_scaled_loss,
    noting_metrics,
)
from terngrad_tf.distribute.private.keras_names import TensorFlowTrainer
from terngrad_tf.distribute.private.patches import patch
from terngrad_tf.distribute.private.replicas.devices import local_tensors
from terngrad_tf.distribute.private.replicas.padding import current_padding
from terngrad_tf.distribute.private.replicas.random_seeds import SEED_STRIDE
from terngrad_tf.distribute.private.strategies.strategies import is_own
from terngrad_tf.distribute.steps.contexts import keras_loop, optimizer_of_local_step
from terngrad_tf.distribute.steps.local_steps_optimizer import local_steps_optimizer
from terngrad_tf.last_line import is_interrupt

if keras.config.backend() != "tensorflow":
    # Keras would train without `tf.distribute`, each process for itself, and say nothing.
    raise ImportError(
        "terngrad_tf needs the TensorFlow backend of Keras. Received: "
        f"backend={keras.config.backend()!r}. Set the environment variable KERAS_BACKEND to "
        "tensorflow, or `backend` in ~/.keras/keras.json."
    )

_state = threading.local()


class KerasStep(typing.NamedTuple):
    """A step that Keras is about to run.

    Attributes:
        kind: "train", "test" or "predict".
        model: the model whose step it is.
    """

    kind: str
    model: keras.Model

    def run(self, strategy: Any, step: Callable[..., Any], args: Sequence[Any]) -> Any:
        """Runs the step on batches, by a strategy of this package."""
        if self.kind == "predict":
            return strategy.run_padded(step, args, returns_rows=True)
        if not has_own_step(self.model, self.kind):
            return strategy.run_padded(step, args)
        with noting_metrics(self.model):
            return strategy.run_padded(averaged(step, self.model), args)


def in_keras_step() -> KerasStep | None:
    """Keras' own step that is about to run, or None."""
    return getattr(_state, "step", None)


@contextlib.contextmanager
def keras_step(step: KerasStep | None) -> Iterator[None]:
    """What runs within calls `strategy.run` as Keras does for this step."""
    previous, _state.step = in_keras_step(), step
    try:
        yield
    finally:
        _state.step = previous


@patch(TensorFlowTrainer, "make_train_function", "make_test_function", "make_predict_function")
def _in_step(stock, self, force=False):
    """Lets the strategy know which functions are Keras' own steps.

    They are Keras' `run` of a step on a batch, and get examples where a replica has none; what
    users give to `run` is theirs.
    """
    attribute = stock.__name__.removeprefix("make_")
    before = getattr(self, attribute)
    if attribute == "train_function" and is_own(self.distribute_strategy) and self.built:
        _choose_weights(self)
    stock(self, force)
    made = getattr(self, attribute)
    if made is None or (made is before and not force):
        return made

    @functools.wraps(made)
    def in_step(*args):
        kind = attribute.removesuffix("_function")
        # A model that is not compiled has no such attribute, and predicts all the same.
        optimizer = getattr(self, "optimizer", None)

        def step():
            with keras_step(KerasStep(kind, self)), keras_loop(kind, optimizer):
                return made(*args)

        local = local_steps_optimizer(optimizer) if kind == "train" else None
        try:
            return step() if local is None else local.run_step(step, self.steps_per_execution)
        except (KeyboardInterrupt, RuntimeError) as error:
            if not is_own(self.distribute_strategy) or not is_interrupt(error):
                raise
        # Without the hundreds of lines of where in TensorFlow that was.
        raise KeyboardInterrupt

    setattr(self, attribute, in_step)
    return in_step


def _choose_weights(model):
    """Lets replicas train weights of their own if the model's optimizer takes local steps."""
    if getattr(model, "optimizer", None) is None:
        return
    local = local_steps_optimizer(model.optimizer)
    if local is None:
        weights = [variable.value for variable in model.trainable_variables]
        model.distribute_strategy.extended.end_local_weights(weights)
        return
    if not local.built:
        # Before a step is traced, or it would train the weights that all share.
        with model.distribute_strategy.scope():
            model.optimizer.build(model.trainable_variables)
    local.claim_weights()


@patch(keras_loss, "scale_loss_for_distribution")
def _scale_loss(stock, value):
    """Weighs a replica's mean loss by its share of the batch's examples.

    Keras divides by the number of replicas, so in a batch that does not divide evenly among them
    examples would count differently, and those of a batch with fewer examples than replicas less.
    """
    share = current_padding().share
    scaled = stock(value) if share is None else value * tf.cast(share, value.dtype)
    return note_scaled(note_scaled_loss(scaled))


@patch(keras_loss, "unscale_loss_for_distribution")
def _unscale_loss(stock, value):
    """Undoes the above."""
    share = current_padding().share
    return stock(value) if share is None else value / tf.cast(share, value.dtype)


def unscale_loss(loss: tf.Tensor) -> tf.Tensor:
    """A replica's mean loss of its part of the global loss, as Keras' metrics want it."""
    return keras_loss.unscale_loss_for_distribution(loss)


@patch(keras_tf_trainer, "reduce_per_replica")
def _reduce_over_processes(stock, values, strategy, reduction):
    """Gathers `predict`'s outputs of all processes, and gives callbacks the same metrics on all.

    Keras gathers outputs for `MultiWorkerMirroredStrategy` only, and shows callbacks the metrics of
    the process's own replicas. A callback that stops training on one process (`TerminateOnNaN`)
    would leave the others waiting for it.
    """
    group = getattr(strategy.extended, "process_group", None)
    if group is None:
        return stock(values, strategy, reduction)
    if reduction == "concat":
        # A process's replicas have neighbouring parts of a batch; those of the stock strategy
        # have not, so Keras would put rows into another order.
        return tf.nest.map_structure(lambda value: strategy.gather(value, axis=0), values)
    values, optimizer = stock(values, strategy, reduction), optimizer_of_local_step()
    mean = functools.partial(_mean_over_processes, group=group)
    return mean(values) if optimizer is None else optimizer.agree_on_logs(values, mean)


def _mean_over_processes(values, group):
    flat = [tf.convert_to_tensor(value) for value in tf.nest.flatten(values)]
    if not flat:
        return values
    parts = [tf.reshape(tf.cast(value, tf.float64), [-1]) for value in flat]
    means = group.all_reduce_sum(tf.concat(parts, 0)) / group.size
    means = tf.split(means, [value.shape.num_elements() for value in flat])
    means = [tf.cast(tf.reshape(m, v.shape), v.dtype) for m, v in zip(means, flat, strict=True)]
    return tf.nest.pack_sequence_as(values, means)


@patch(TensorFlowTrainer, "_maybe_symbolic_build")
def _build_on_own_batch(stock, self, iterator=None, data_batch=None):
    """Builds a model with the process's own part of the first batch.

    Keras averages the first batch over all replicas to learn its shape. That fails where shards
    differ in size, and moves the batch over the network. It also calls the model on dense tensors
    of the batch's shapes, which need not work: the model may have steps of its own (GANs,
    autoencoders) or want ragged or sparse tensors. Such models are built when their step is traced,
    as without a strategy, which also shows what is wrong with one that cannot be called.
    """
    strategy = self._distribute_strategy
    if strategy is None or not is_own(strategy):
        return stock(self, iterator=iterator, data_batch=data_batch)
    if type(self).call is keras.Model.call:
        return None
    if iterator is not None:
        data_batch = first_batch(iterator)
    if iterator is not None and data_batch is None:
        for _, _, batches in iterator:
            data_batch = tf.nest.map_structure(lambda v: local_tensors(v)[0], next(batches))
            break
    try:
        return stock(self, data_batch=data_batch)
    except (RuntimeError, ValueError):
        return None


@patch(keras.random.SeedGenerator, "next")
def _seed_of_replica(stock, self, ordered=True):
    """Lets replicas draw different random values.

    Keras' random state knows no replica, so dropout would draw the same mask for the examples of
    each.
    """
    seed = stock(self, ordered)
    replica_context = tf.distribute.get_replica_context()
    if replica_context is None or not is_own(replica_context.strategy):
        return seed
    # The state moves on alike everywhere; only what is drawn from it differs. Replica 0 draws
    # what a single replica would.
    replica = tf.cast(replica_context.replica_id_in_sync_group, seed.dtype)
    return seed + replica * tf.constant([SEED_STRIDE, 0], seed.dtype)
