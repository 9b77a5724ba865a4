"""Lets `fit` resume in the middle of its epochs and data after a restart, and end after an error.

A callback cannot set `initial_epoch`, and no argument gives the number of batches already read.
After an error, Keras calls no callback. No public name exists for all layers of a model, nor for
the weights that an optimizer trains.
"""

import contextlib
import itertools
import typing
import weakref
from collections.abc import Sequence
from typing import Any

import keras
from keras.src.backend.tensorflow import trainer as keras_tf_trainer
from keras.src.optimizers import base_optimizer as keras_base_optimizer

from terngrad_tf.distribute.private.data.epochs import without_reading
from terngrad_tf.distribute.private.keras.keras_training import in_keras_step
from terngrad_tf.distribute.private.keras_names import TensorFlowTrainer
from terngrad_tf.distribute.private.patches import patch

_Iterator = keras_tf_trainer.TFEpochIterator


class _Skipped(typing.NamedTuple):
    epochs: int
    batches: int
    of_epoch: int | None


# {model: its iterator}, {iterator: (data already trained on, True to read past them)}.
_iterators: typing.Any = weakref.WeakKeyDictionary()
_skipped: typing.Any = weakref.WeakKeyDictionary()
# {model: contexts of its `fit`}, {model: optimizers that its `fit` used}.
_contexts: typing.Any = weakref.WeakKeyDictionary()
_used: typing.Any = weakref.WeakKeyDictionary()


def resume_fit(
    model: keras.Model,
    epoch: int,
    num_epochs: int,
    batch: int,
    batches_of_epoch: int | None,
    steps_per_execution: int | None,
    reads: bool,
) -> None:
    """Lets `fit` resume in the middle; call it in a callback's `on_train_begin`.

    Args:
        epoch: the epoch to resume, from 0.
        num_epochs: epochs already trained on, `epoch` unless training began at a later one.
        batch: batches of the current epoch already trained on.
        batches_of_epoch: batches of the first completed epoch, if known.
        steps_per_execution: batches that were trained on at once, if known.
        reads: True to skip data already trained on; False if the data begin with the epoch's
            remaining batches.

    Raises:
        ValueError: steps would begin at other batches than before.
    """
    iterator = _iterators.get(model, lambda: None)()
    if iterator is not None and iterator.steps_per_epoch:
        length, now = iterator.steps_per_epoch, iterator.steps_per_execution
        before = steps_per_execution or now
        # One iterator serves all epochs, of which the last step may read more batches.
        batch = _whole_steps(batch, before)
        if batch % now or _whole_steps(length, before) != _whole_steps(length, now):
            raise ValueError(
                f"`steps_per_execution` must be {before}, as when the checkpoint was saved, since"
                " `steps_per_epoch` is set and steps would begin at other batches. Received:"
                f" steps_per_execution={now}"
            )
    model._initial_epoch = epoch
    if iterator is not None and (num_epochs or batch):
        _skipped[iterator] = _Skipped(num_epochs, batch, batches_of_epoch), reads


def _whole_steps(batches, count):
    return -(-batches // count) * count


def forget_resumed(model: keras.Model) -> None:
    """Lets the next `fit` start according to its arguments."""
    model._initial_epoch = 0


def exit_after_fit(model: keras.Model, stack: contextlib.ExitStack) -> None:
    """Lets the running `fit` exit contexts, also after an error; call it in a callback.

    Nothing happens if the callback is not called by `fit`.
    """
    if (contexts := _contexts.get(model)) is not None:
        contexts.push(stack)


def optimizers_used_by(model: keras.Model) -> list[keras.optimizers.Optimizer]:
    """Returns the optimizers that took steps in a model's `fit`, whoever holds them."""
    return list(_used.get(model, ()))


def positions_of_trained(optimizer: Any, variables: Sequence[Any]) -> list[int | None]:
    """Returns the position among variables of each weight that a built optimizer trains."""
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    positions = {optimizer._var_key(v): place for place, v in enumerate(variables)}
    return [positions.get(key) for key in optimizer._trainable_variables_indices]


@patch(TensorFlowTrainer, "fit")
def _exit_contexts(stock, self, *args, **kwargs):
    """Exits contexts that callbacks entered."""
    with contextlib.ExitStack() as contexts:
        outer, _contexts[self] = _contexts.get(self), contexts
        if self.train_function is None:
            # `compile` may have replaced the optimizer of earlier steps.
            _used.pop(self, None)
        try:
            return stock(self, *args, **kwargs)
        finally:
            _contexts[self] = outer


@patch(keras_base_optimizer.BaseOptimizer, "apply")
def _note_optimizer(stock, self, *args, **kwargs):
    """Notes which optimizers a `fit` uses: no attribute of its model may tell."""
    step = in_keras_step()
    running = [model for model, contexts in _contexts.items() if contexts is not None]
    for model in running if step is None else [step.model]:
        _used.setdefault(model, weakref.WeakSet()).add(self)
    return stock(self, *args, **kwargs)


@patch(TensorFlowTrainer, "_maybe_symbolic_build")
def _note_iterator(stock, self, iterator=None, data_batch=None):
    """Notes the data that a model is to read: only here does `fit` pass its iterator on."""
    if iterator is not None:
        _iterators[self] = weakref.ref(iterator)
    return stock(self, iterator=iterator, data_batch=data_batch)


@patch(_Iterator, "__iter__")
def _skip(stock, self):
    """Skips data read before a restart, and counts the epoch's steps from there."""
    skipped, reads = _skipped.pop(self, (None, False))
    if skipped is None:
        return stock(self)
    if reads:
        _begin_epochs(stock, self, skipped)
    stock(self)
    steps, count = self._epoch_iterator, self.steps_per_execution
    num_steps, rest = divmod(skipped.batches, count)
    for _, _, batches in itertools.islice(steps, num_steps):
        if reads:
            _read(batches, count)
    # A run with other `steps_per_execution` may have stopped within a step of this one.
    if rest and (step := next(steps, None)) is not None:
        if reads:
            _read(step[-1], rest)
        self._epoch_iterator = _later(itertools.chain([step], steps), rest, self.num_batches)
    return self


def _later(steps, num_batches, end):
    """Yields steps that begin some batches later, those before the epoch's end, if it is known."""
    for begin, last, batches in steps:
        if end is None or begin + num_batches < end:
            yield begin + num_batches, last + num_batches, batches


def _begin_epochs(stock, iterator, skipped):
    """Advances data past completed epochs, of which each begins and ends as in Keras' `fit`.

    A shuffle of `tf.data` advances whenever an iteration begins; data are read only if one
    iterator serves all epochs.
    """
    adapter = iterator.data_adapter
    if iterator.steps_per_epoch is not None:
        for _ in range(skipped.epochs):
            with iterator.catch_stop_iteration():
                for _, _, batches in stock(iterator)._epoch_iterator:
                    _read(batches, iterator.steps_per_execution)
        return
    has_length = adapter.num_batches is not None
    with without_reading(adapter) as draw_order:
        for _ in range(skipped.epochs):
            for begin, _, _ in stock(iterator)._epoch_iterator:
                if not has_length:
                    # A step without data ends the epoch. Otherwise Keras begins one more iteration.
                    adapter.on_epoch_end()
                    break
                if begin == 0:
                    draw_order()
    if not has_length and skipped.epochs and skipped.of_epoch is not None:
        # Keras counts the step without data, too.
        iterator._num_batches = skipped.of_epoch + iterator.steps_per_execution


def _read(batches, count):
    """Reads the batches of a step; raises StopIteration if there are none."""
    next(batches)
    for _ in range(count - 1):
        if next(batches, None) is None:
            break
