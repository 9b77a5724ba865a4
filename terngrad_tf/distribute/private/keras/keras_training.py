"""Adapts Keras 3 to `tf.distribute`: its training loop, losses and seeds."""

import contextlib
import functools
import threading
import typing
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.tensorflow import trainer as keras_tf_trainer

from terngrad_tf.common.last_line import is_interrupt
from terngrad_tf.distribute.private.collectives.local_weights import held_optimizers
from terngrad_tf.distribute.private.data.epochs import first_batch
from terngrad_tf.distribute.private.keras.step_results import (
    averaged,
    has_own_step,
    note_logs,
    noting_metrics,
)
from terngrad_tf.distribute.private.keras_names import TensorFlowTrainer
from terngrad_tf.distribute.private.patches import patch
from terngrad_tf.distribute.private.replicas.devices import local_tensors
from terngrad_tf.distribute.private.replicas.random_seeds import SEED_STRIDE
from terngrad_tf.distribute.private.replicas.replica_data import as_specified
from terngrad_tf.distribute.private.strategies.gathered_rows import gather_rows
from terngrad_tf.distribute.private.strategies.strategies import is_own
from terngrad_tf.distribute.steps.contexts import (
    is_single_batch,
    keras_loop,
    optimizer_of_local_step,
)
from terngrad_tf.distribute.steps.local_steps_optimizer import local_steps_optimizer

if keras.config.backend() != "tensorflow":
    # Otherwise each process would train separately without a warning.
    raise ImportError(
        "terngrad_tf needs the TensorFlow backend of Keras. Received: "
        f"backend={keras.config.backend()!r}. Set the environment variable KERAS_BACKEND to "
        "tensorflow, or `backend` in ~/.keras/keras.json."
    )

_state = threading.local()
# {model: the error of a build that may have built some of its layers}.
_failed_builds = weakref.WeakKeyDictionary()
# What Keras says if such a layer is built again.
_BUILT_TWICE = "You cannot add new elements of state"


class KerasStep(typing.NamedTuple):
    """A step that Keras is about to run.

    Attributes:
        kind: "train", "test" or "predict".
        jit_compile: True if XLA compiles what each replica computes alone.
        spec: that of the batches; None if they come from no data set.
    """

    kind: str
    model: keras.Model
    jit_compile: bool
    spec: Any = None

    def run(self, strategy: Any, step: Callable[..., Any], args: Sequence[Any]) -> Any:
        """Runs the step on batches, under a strategy of this package."""
        predicts = self.kind == "predict"
        if self.spec is not None and strategy.num_replicas_in_sync > 1:
            args = [as_specified(args[0], self.spec)]
        is_own_step = not predicts and has_own_step(self.model, self.kind)
        if is_own_step:
            step = averaged(step, self.model, self.kind)
        if self.jit_compile:
            step = tf.function(step, jit_compile=True)
        with noting_metrics(self.model) if is_own_step else contextlib.nullcontext():
            return strategy.run_padded(step, args, returns_rows=predicts)


def in_keras_step() -> KerasStep | None:
    """Returns the step that Keras is about to run, or None."""
    return getattr(_state, "step", None)


@contextlib.contextmanager
def keras_step(step: KerasStep | None) -> Iterator[None]:
    """Context in which `strategy.run` is called by Keras for this step."""
    previous, _state.step = in_keras_step(), step
    try:
        yield
    finally:
        _state.step = previous


def wrap_made(
    stock: Callable[..., Any], model: keras.Model, force: bool, wrap: Callable[..., Any] | None
) -> Callable[..., Any] | None:
    """Makes the function of a model's steps, and wraps it if it is new.

    Args:
        stock: Keras' method that makes it, such as `make_train_function`.
        force: as in Keras' method.
        wrap: returns the function to take the place of Keras'; None to leave it.

    Returns:
        The model's function.
    """
    attribute = stock.__name__.removeprefix("make_")
    before = getattr(model, attribute)
    stock(model, force)
    made = getattr(model, attribute)
    if wrap is None or made is None or (made is before and not force):
        return made
    wrapped = functools.wraps(made)(wrap(made))
    setattr(model, attribute, wrapped)
    return wrapped


@patch(TensorFlowTrainer, "make_train_function", "make_test_function", "make_predict_function")
def _in_step(stock, self, force=False):
    """Marks Keras' own steps for the strategy.

    Here, unlike in users' calls of `run`, replicas without examples get padding.
    """
    kind = stock.__name__.removeprefix("make_").removesuffix("_function")
    own = is_own(self.distribute_strategy)
    if kind == "train" and own and self.built:
        _choose_weights(self)
    jit_compile = own and bool(self.jit_compile) and not self.run_eagerly

    def wrap(made):
        def in_step(*args):
            # Absent without `compile`.
            optimizer = getattr(self, "optimizer", None)

            def step():
                spec = getattr(args[0], "element_spec", None)
                with (
                    keras_step(KerasStep(kind, self, jit_compile, spec)),
                    keras_loop(kind, optimizer),
                    _raising_first_error(self),
                ):
                    return made(*args)

            local = local_steps_optimizer(optimizer) if kind == "train" else None
            try:
                if kind == "predict":
                    return step()
                steps = self.steps_per_execution
                logs = step() if local is None else local.schedule.run_step(step, steps)
                return note_logs(self, kind, logs)
            except (KeyboardInterrupt, RuntimeError) as error:
                if not own or not is_interrupt(error):
                    raise
            # Without TensorFlow's long traceback.
            raise KeyboardInterrupt

        return in_step

    with _without_jit(self) if jit_compile else contextlib.nullcontext():
        return wrap_made(stock, self, force, wrap)


@contextlib.contextmanager
def _raising_first_error(model):
    """Context of a step that may build a model again after a failed build, whose error it raises.

    The second build fails at the layers of the first, which says nothing about the cause.
    """
    first = _failed_builds.pop(model, None)
    try:
        yield
    except ValueError as error:
        if first is None or _BUILT_TWICE not in str(error):
            raise
        raise first from None


@contextlib.contextmanager
def _without_jit(model):
    """Context in which Keras leaves the step to `KerasStep`: it would compile the exchange, too."""
    model.jit_compile = False
    try:
        yield
    finally:
        model.jit_compile = True


def _choose_weights(model):
    """Lets replicas train their own weights if the model's optimizer takes local steps."""
    if getattr(model, "optimizer", None) is None:
        return
    local = local_steps_optimizer(model.optimizer)
    if local is None:
        weights = [variable.value for variable in model.trainable_variables]
        # Keras' own step trains all of them with `model.optimizer`.
        held = held_optimizers(model) if has_own_step(model, "train") else ()
        kept = [optimizer.local_weights for optimizer in held]
        model.distribute_strategy.extended.end_local_weights(weights, kept)
        return
    if not local.built:
        # Otherwise the traced step would train the shared weights.
        with model.distribute_strategy.scope():
            model.optimizer.build(model.trainable_variables)
    local.claim_weights()


@patch(keras_tf_trainer, "reduce_per_replica")
def _reduce_over_processes(stock, values, strategy, reduction):
    """Gathers the outputs of `predict` from all processes; gives all callbacks equal metrics.

    Keras gathers for `MultiWorkerMirroredStrategy` only, and gives callbacks the process's own
    metrics. If a callback (`TerminateOnNaN`) stopped one process, the others would hang.
    """
    group = getattr(strategy.extended, "process_group", None)
    if reduction == "concat" and is_own(strategy) and (group is None or is_single_batch()):
        values = tf.nest.map_structure(_concat_sparse, values)
        return stock(values, strategy, reduction)
    if group is None:
        return stock(values, strategy, reduction)
    if reduction == "concat":
        # Keras would reorder the rows: unlike in the stock strategy, replicas have adjacent parts.
        return tf.nest.map_structure(functools.partial(gather_rows, strategy), values)
    values, optimizer = stock(values, strategy, reduction), optimizer_of_local_step()
    mean = functools.partial(_mean_over_processes, group=group)
    return mean(values) if optimizer is None else optimizer.schedule.agree_on_logs(values, mean)


def _concat_sparse(value):
    """Joins sparse tensors of replicas, which TensorFlow does for lists only, not for tuples."""
    parts = local_tensors(value)
    return tf.sparse.concat(0, list(parts)) if isinstance(parts[0], tf.SparseTensor) else value


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
    """Builds a model on the process's own part of the first batch.

    Keras averages the first batch over replicas, which fails if shards differ in size, and calls
    the model on dense tensors, which may fail (own steps, ragged or sparse inputs). The trace of a
    step builds such models and reports errors.
    """
    strategy = self._distribute_strategy
    if strategy is None or not is_own(strategy):
        return stock(self, iterator=iterator, data_batch=data_batch)
    if type(self).call is keras.Model.call:
        return None
    if iterator is not None:
        data_batch = first_batch(iterator, all(layer.built for layer in self._flatten_layers()))
    if iterator is not None and data_batch is None:
        for _, _, batches in iterator:
            data_batch = tf.nest.map_structure(lambda v: local_tensors(v)[0], next(batches))
            break
    try:
        return stock(self, data_batch=data_batch)
    except (RuntimeError, ValueError) as error:
        # Keras may wrap the error.
        is_wrapper = str(error).startswith("Unable to automatically build the model")
        _failed_builds[self] = (error.__context__ if is_wrapper else None) or error
        return None


@patch(keras.random.SeedGenerator, "next")
def _seed_of_replica(stock, self, ordered=True):
    """Lets replicas draw different random values.

    Keras' random state ignores replicas: dropout would draw the same mask on each.
    """
    seed = stock(self, ordered)
    replica_context = tf.distribute.get_replica_context()
    if replica_context is None or not is_own(replica_context.strategy):
        return seed
    # The state advances equally on all replicas. Replica 0 draws as without a strategy.
    replica = tf.cast(replica_context.replica_id_in_sync_group, seed.dtype)
    return seed + replica * tf.constant([SEED_STRIDE, 0], seed.dtype)
