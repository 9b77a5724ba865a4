"""Where Keras 3 leaves gaps under `tf.distribute`."""

import contextlib
import functools
import threading

import keras
import tensorflow as tf
from keras.src.backend.tensorflow import trainer as keras_tf_trainer
from keras.src.losses import loss as keras_loss

from terngrad_tf.distribute.private import keras_optimizers, scopes
from terngrad_tf.distribute.private.devices import local_tensors
from terngrad_tf.distribute.private.strategies import SharedVariableReplicas

if keras.config.backend() != "tensorflow":
    # Keras would train without `tf.distribute`, each process for itself, and say nothing.
    raise ImportError(
        "terngrad_tf needs the TensorFlow backend of Keras. Received: "
        f"backend={keras.config.backend()!r}. Set the environment variable KERAS_BACKEND to "
        "tensorflow, or `backend` in ~/.keras/keras.json."
    )

# A prime far from the distances between seeds that people choose.
_SEED_STRIDE = 1_000_000_007

_hooks = threading.local()
_hooks_installed = False


def install_keras_hooks(op_class):
    """Wraps the Keras functions below, once a process. Other strategies are left as they are.

    1. Optimizers: see `keras_optimizers`, a function a hook.
    2. `Trainer.make_{train,test,predict}_function`: see `_hook_steps`.
    3. `{scale,unscale}_loss_for_distribution`: see `_hook_loss_scale`.
    4. `reduce_per_replica`: Keras gathers `predict`'s outputs from other processes for
       `MultiWorkerMirroredStrategy` only, and shows callbacks the metrics of the process's own
       replicas. A callback that stops training on one process (`TerminateOnNaN`) would leave the
       others waiting for it.
    5. `Trainer._maybe_symbolic_build`: Keras averages the first batch over all replicas to learn
       its shape. That fails where shards differ in size, and moves the batch over the network. It
       also calls the model on the batch, which need not work where the model has steps of its own
       (GANs, autoencoders). Such models are built when their step is traced, as without a strategy.
    6. `SeedGenerator.next`: Keras' random state knows no replica, so dropout would draw the same
       mask for every replica's examples.
    7. `Optimizer.build` and `apply`: an optimizer that was made outside of the strategy's scope has
       variables that each replica updates. Its step, and with it a rate's schedule, would advance
       once a replica.
    """
    global _hooks_installed
    if _hooks_installed:
        return
    _hooks_installed = True
    keras_optimizers.hook_exchange(op_class)
    keras_optimizers.hook_rate()
    keras_optimizers.hook_accumulators()
    keras_optimizers.hook_check_finite(op_class)
    keras_optimizers.hook_cond()
    _hook_steps()
    _hook_loss_scale()
    _hook_predict()
    _hook_symbolic_build()
    _hook_seeds()
    scopes.refuse_optimizers_from_outside(op_class)


def in_keras_step():
    """The kind of Keras' own step that is about to run: "train", "test", "predict" or None."""
    return getattr(_hooks, "step", None)


@contextlib.contextmanager
def keras_step(kind):
    """What runs within calls `strategy.run` as Keras does for a step of this kind."""
    previous, _hooks.step = in_keras_step(), kind
    try:
        yield
    finally:
        _hooks.step = previous


def _hook_steps():
    """Lets the strategy know which functions are Keras' own steps.

    They are Keras' `run` of a step on a batch, and get examples where a replica has none; what
    users give to `run` is theirs.
    """
    trainer_class = keras_tf_trainer.TensorFlowTrainer

    def hook(kind):
        stock = getattr(trainer_class, f"make_{kind}_function")
        attribute = f"{kind}_function"

        @functools.wraps(stock)
        def make(self, force=False):
            before = getattr(self, attribute)
            stock(self, force)
            made = getattr(self, attribute)
            if made is not None and (made is not before or force):
                setattr(self, attribute, in_step(made))
            return getattr(self, attribute)

        def in_step(function):
            @functools.wraps(function)
            def keras_function(*args):
                with keras_step(kind):
                    return function(*args)

            return keras_function

        setattr(trainer_class, f"make_{kind}_function", make)

    for kind in ("train", "test", "predict"):
        hook(kind)


def _hook_loss_scale():
    """Weighs a replica's mean loss by its share of the batch's examples.

    Keras divides by the number of replicas, so in a batch that does not divide evenly among them
    examples would count differently, and those of a batch with fewer examples than replicas less.
    """
    stock_scale = keras_loss.scale_loss_for_distribution
    stock_unscale = keras_loss.unscale_loss_for_distribution

    def share_of_examples():
        extended = tf.distribute.get_strategy().extended
        return (
            extended.share_of_examples() if isinstance(extended, SharedVariableReplicas) else None
        )

    def scale_loss_for_distribution(value):
        share = share_of_examples()
        return stock_scale(value) if share is None else value * tf.cast(share, value.dtype)

    def unscale_loss_for_distribution(value):
        share = share_of_examples()
        return stock_unscale(value) if share is None else value / tf.cast(share, value.dtype)

    keras_loss.scale_loss_for_distribution = scale_loss_for_distribution
    keras_loss.unscale_loss_for_distribution = unscale_loss_for_distribution


def unscale_loss(loss):
    """A replica's mean loss of its part of the global loss, as Keras' metrics want it."""
    return keras_loss.unscale_loss_for_distribution(loss)


def _hook_predict():
    stock = keras_tf_trainer.reduce_per_replica

    def reduce_per_replica(values, strategy, reduction):
        group = getattr(strategy.extended, "process_group", None)
        if group is None:
            return stock(values, strategy, reduction)
        if reduction == "concat":
            # A process's replicas have neighbouring parts of a batch; those of the stock strategy
            # have not, so Keras would put rows into another order.
            return tf.nest.map_structure(lambda value: strategy.gather(value, axis=0), values)
        return _mean_over_processes(stock(values, strategy, reduction), group)

    keras_tf_trainer.reduce_per_replica = reduce_per_replica


def _mean_over_processes(values, group):
    flat = [tf.convert_to_tensor(value) for value in tf.nest.flatten(values)]
    if not flat:
        return values
    parts = [tf.reshape(tf.cast(value, tf.float32), [-1]) for value in flat]
    means = group.all_reduce_sum(tf.concat(parts, 0)) / group.size
    means = tf.split(means, [value.shape.num_elements() for value in flat])
    means = [tf.cast(tf.reshape(m, v.shape), v.dtype) for m, v in zip(means, flat, strict=True)]
    return tf.nest.pack_sequence_as(values, means)


def _hook_symbolic_build():
    stock = keras_tf_trainer.TensorFlowTrainer._maybe_symbolic_build

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        strategy = self._distribute_strategy
        if strategy is None or not isinstance(strategy.extended, SharedVariableReplicas):
            return stock(self, iterator=iterator, data_batch=data_batch)
        if type(self).call is keras.Model.call:
            return None
        if iterator is not None:
            for _, _, batches in iterator:
                data_batch = tf.nest.map_structure(lambda v: local_tensors(v)[0], next(batches))
                break
        try:
            return stock(self, data_batch=data_batch)
        except (RuntimeError, ValueError):
            trainer = keras_tf_trainer.TensorFlowTrainer
            steps = type(self).train_step, type(self).test_step
            if steps == (trainer.train_step, trainer.test_step):
                raise
            return None

    keras_tf_trainer.TensorFlowTrainer._maybe_symbolic_build = _maybe_symbolic_build


def _hook_seeds():
    stock = keras.random.SeedGenerator.next

    def next_seed(self, ordered=True):
        seed = stock(self, ordered)
        replica_context = tf.distribute.get_replica_context()
        if replica_context is None or not isinstance(
            replica_context.strategy.extended, SharedVariableReplicas
        ):
            return seed
        # The state moves on alike everywhere; only what is drawn from it differs. Worker 0 draws
        # what a single replica would.
        replica = tf.cast(replica_context.replica_id_in_sync_group, seed.dtype)
        return seed + replica * tf.constant([_SEED_STRIDE, 0], seed.dtype)

    keras.random.SeedGenerator.next = next_seed
