"""Models that tests of local steps train, and references in plain Keras."""

import itertools
import os

import keras
import numpy as np
import tensorflow as tf

import terngrad_tf
from tests.distribute import strategy_options

NUM_FEATURES = 6


def data(num_examples, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num_examples, NUM_FEATURES)).astype(np.float32)
    y = np.tanh(x @ rng.normal(size=(NUM_FEATURES, 1))).astype(np.float32)
    return x, y


def network(batch_norm=False):
    """A network with the same initial weights at each call."""
    init = [keras.initializers.GlorotUniform(seed) for seed in (1, 2)]
    layers = [
        keras.Input([NUM_FEATURES]),
        keras.layers.Dense(5, "tanh", kernel_initializer=init[0]),
    ]
    if batch_norm:
        layers.append(keras.layers.BatchNormalization(momentum=0.8))
    return keras.Sequential([*layers, keras.layers.Dense(1, kernel_initializer=init[1])])


def trained(
    optimizer,
    num_nodes,
    *,
    batch_norm=False,
    compile_options=None,
    fit=None,
    num_examples=48,
    is_of_known_length=True,
    **strategy,
):
    """A model after `fit` under a strategy, in epochs of `num_examples / 12` steps."""
    strategy = terngrad_tf.TernGradStrategy(
        num_nodes=num_nodes, **strategy_options.arguments(**{"grad_bits": 32, **strategy})
    )
    with strategy.scope():
        model = network(batch_norm)
        model.compile(optimizer(), "mse", **(compile_options or {}))
    x, y = (np.resize(part, [num_examples, part.shape[1]]) for part in data(48))
    options = {"epochs": 3, "shuffle": False, "verbose": 0, **(fit or {})}
    if is_of_known_length:
        model.fit(x, y, **{"batch_size": 12, **options})
    else:
        model.fit(of_unknown_length(x, y), **options)
    return model


def of_unknown_length(x, y):
    """A data set of batches of 12 examples whose end shows only when it is reached."""
    return tf.data.Dataset.from_tensor_slices((x, y)).filter(lambda *_: True).batch(12)


class Exchanges(keras.callbacks.Callback):
    """Records the steps that end with an exchange; also exchanges after the steps in `due`."""

    def __init__(self, due=()):
        super().__init__()
        self.steps = []
        self._due = due

    def on_train_batch_end(self, batch, logs=None):
        if batch + 1 in self._due:
            self.model.optimizer.synchronize()
        if not self.model.optimizer.steps_since_exchange:
            self.steps.append(batch + 1)


def step_outside_of_fit(optimizer):
    """Takes a step of the optimizer that a function makes, in a custom loop."""
    strategy = terngrad_tf.TernGradStrategy(num_nodes=2)
    with strategy.scope():
        weight = keras.Variable([1.0])
        optimizer = optimizer()
        optimizer.build([weight])
    strategy.run(tf.function(lambda: optimizer.apply([tf.constant([1.0])], [weight])))


def fit_steps(model, first_step, last_step, callbacks=()):
    """Fits some steps of a run, counted from 0, in batches of 12 examples."""
    batches = tf.data.Dataset.from_tensor_slices(data(48)).batch(12).repeat().skip(first_step)
    model.fit(batches, steps_per_epoch=last_step - first_step, callbacks=list(callbacks), verbose=0)


class ResumeCases:
    """Runs that stop and continue, equal to the bit.

    A mixin for test cases whose `compiled` returns a strategy and a compiled model.
    """

    def assert_same_state(self, one, other):
        for a, b in zip(
            one.variables + one.optimizer.variables,
            other.variables + other.optimizer.variables,
            strict=True,
        ):
            self.assertAllEqual(a.numpy(), b.numpy(), msg=a.path)

    def assert_goes_on(self, kind, step, num_steps):
        """Compares a run with one that continues from the file saved after `step` steps.

        Args:
            kind: "keras" for a `.keras` file, "checkpoint" for a `tf.train.Checkpoint`.
            step: steps before the first run saves.
            num_steps: total steps of each run.
        """
        path = os.path.join(self.get_temp_dir(), "saved")

        class Save(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                if batch == step - 1 and kind == "keras":
                    self.model.save(f"{path}.keras")
                elif batch == step - 1:
                    tf.train.Checkpoint(model=self.model, optimizer=self.model.optimizer).write(
                        path
                    )

        _, undisturbed = self.compiled()
        fit_steps(undisturbed, 0, num_steps, [Save()])
        strategy, resumed = self.compiled()
        with strategy.scope():
            if kind == "keras":
                resumed = keras.models.load_model(f"{path}.keras")
            else:
                resumed.optimizer.build(resumed.trainable_variables)
                checkpoint = tf.train.Checkpoint(model=resumed, optimizer=resumed.optimizer)
                checkpoint.read(path).assert_existing_objects_matched()
        fit_steps(resumed, step, num_steps)
        self.assert_same_state(undisturbed, resumed)


def trained_apart(
    inner,
    outer,
    num_replicas,
    sync_every,
    *,
    groups=None,
    overlap=0,
    alpha=0.5,
    batch_norm=False,
    epoch_lengths=(4, 4, 4),
    num_examples=48,
):
    """The weights that `trained` must give, from plain Keras models that take turns.

    Each group of weights, given by their positions, has its own outer optimizer. The first replicas
    have an example more if a batch does not divide evenly.
    """
    models = []
    for _ in range(num_replicas):
        models.append(network(batch_norm))
        models[-1].compile(inner(), "mse")
    shared = network(batch_norm)
    weights = shared.trainable_variables
    groups = groups or [list(range(len(weights)))]
    outers = [outer() for _ in groups]
    x, y = (part[:num_examples] for part in data(48))
    steps, turn, changed, under_way = 0, 0, set(), None

    def of_group(group):
        mine = [weights[i] for i in groups[group]]
        return mine, [[model.trainable_variables[i] for i in groups[group]] for model in models]

    def changes(group):
        mine, own = of_group(group)
        return [
            np.mean([w.numpy() - v.numpy() for v in of_models], 0)
            for w, of_models in zip(mine, zip(*own, strict=True), strict=True)
        ]

    def update(group, mean_changes, share=0.0):
        mine, own = of_group(group)
        outers[group].apply([tf.constant(c) for c in mean_changes], mine)
        for of_model in own:
            for variable, new in zip(of_model, mine, strict=True):
                variable.assign(share * variable + (1 - share) * new)
        if group == len(groups) - 1:
            for i, variable in enumerate(shared.non_trainable_variables):
                mean = np.mean([m.non_trainable_variables[i].numpy() for m in models], 0)
                for v in (variable, *(m.non_trainable_variables[i] for m in models)):
                    v.assign(mean)

    starts = itertools.cycle(range(0, 48, 12))
    for length in epoch_lengths:
        for start in itertools.islice(starts, length):
            parts = zip(
                np.array_split(x[start : start + 12], num_replicas),
                np.array_split(y[start : start + 12], num_replicas),
                strict=True,
            )
            for model, (part_x, part_y) in zip(models, parts, strict=True):
                model.train_on_batch(part_x, part_y)
            steps, changed = steps + 1, set(range(len(groups)))
            if under_way is not None and steps == under_way[0]:
                update(*under_way[1:], alpha)
                under_way = None
            if steps % (sync_every // len(groups)) == 0:
                group, turn = turn % len(groups), turn + 1
                if overlap:
                    under_way = steps + overlap, group, changes(group)
                else:
                    changed.remove(group)
                    update(group, changes(group))
        if under_way is not None:
            update(*under_way[1:], alpha)
            under_way = None
        for group in sorted(changed):
            update(group, changes(group))
        steps = turn = 0
    return [w.numpy() for w in shared.weights]


def adamw():
    return keras.optimizers.AdamW(
        keras.optimizers.schedules.ExponentialDecay(0.05, 2, 0.9), weight_decay=0.01, clipnorm=0.5
    )


def nesterov():
    return keras.optimizers.SGD(0.7, momentum=0.9, nesterov=True)
