"""Where `fit` goes on after a restart: in the middle of its epochs, and of their data.

Keras offers no public way: `initial_epoch` is an argument of `fit`, which a callback cannot give,
and no argument says which batches of an epoch have been read.
"""

import math
import typing
import weakref

import keras
from keras.src.backend.tensorflow import trainer as keras_tf_trainer

from terngrad_tf.distribute.private.patches import patch

_Iterator = keras_tf_trainer.TFEpochIterator


class _Skipped(typing.NamedTuple):
    epochs: int
    batches: int
    of_epoch: int | None


# What each model is to read next, and what of that it has been trained on.
_iterators: typing.Any = weakref.WeakKeyDictionary()
_skipped: typing.Any = weakref.WeakKeyDictionary()


def resume_fit(
    model: keras.Model, epoch: int, batch: int, batches_of_epoch: int | None, reads: bool
) -> None:
    """Lets `fit` go on in the middle; to be called in a callback's `on_train_begin`.

    Args:
        model: the model that `fit` trains.
        epoch: epochs done.
        batch: batches of the epoch at hand that were trained on.
        batches_of_epoch: how many each epoch before had; None if that is not known.
        reads: whether to pass over the data that were trained on. Otherwise the epoch's remaining
            batches are the data's first.
    """
    model._initial_epoch = epoch
    iterator = _iterators.get(model, lambda: None)()
    if iterator is not None and (epoch or batch):
        _skipped[iterator] = _Skipped(epoch, batch, batches_of_epoch), reads


def forget_resumed(model: keras.Model) -> None:
    """Lets the next `fit` begin where its arguments say."""
    model._initial_epoch = 0


@patch(keras_tf_trainer.TensorFlowTrainer, "_maybe_symbolic_build")
def _note_iterator(stock, self, iterator=None, data_batch=None):
    """Notes which data a model is to read: `fit` shows its iterator to nobody else."""
    if iterator is not None:
        _iterators[self] = weakref.ref(iterator)
    return stock(self, iterator=iterator, data_batch=data_batch)


@patch(_Iterator, "__iter__")
def _skip(stock, self):
    """Passes over what was read before a restart, and counts the epoch's steps from there."""
    skipped, reads = _skipped.pop(self, (None, False))
    if skipped is None:
        return stock(self)
    if reads:
        _begin_epochs(stock, self, skipped)
    stock(self)
    for _ in range(math.ceil(skipped.batches / self.steps_per_execution)):
        step = next(self, None)
        if step is None:
            break
        if reads:
            _read(step[-1], self.steps_per_execution)
    return self


def _begin_epochs(stock, iterator, skipped):
    """Brings a data set to where it is after so many epochs.

    A shuffle goes on to its next order when it is begun, so nothing is read, unless one iterator
    goes through all epochs.
    """
    reads = iterator.steps_per_epoch is not None
    for _ in range(skipped.epochs):
        stock(iterator)
        for _, _, batches in iterator:
            if reads:
                _read(batches, iterator.steps_per_execution)
            elif iterator._num_batches is None and skipped.of_epoch is not None:
                # As Keras does at the end of an epoch whose length it did not know: the step that
                # found no data counts.
                iterator._num_batches = skipped.of_epoch + iterator.steps_per_execution
                iterator._current_iterator = None
                iterator.data_adapter.on_epoch_end()
                break


def _read(batches, count):
    for _ in range(count):
        if next(batches, None) is None:
            break
