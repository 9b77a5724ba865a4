"""Custom training loops, after TensorFlow's tutorials, train as without a strategy."""

import os
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from tests.clients.comparison import ClientTest, numbers, weights

BATCH = 8


def examples():
    x = numbers(16, 3)
    return x, (x.sum(1) > 0).astype(np.int32)


def network(units=2):
    return keras.Sequential([layers.Input((3,)), layers.Dense(4, "tanh"), layers.Dense(units)])


def tutorial(strategy):
    """https://www.tensorflow.org/tutorials/distribute/custom_training, with its names."""
    dataset = tf.data.Dataset.from_tensor_slices(examples()).batch(BATCH)
    train_dist_dataset = strategy.experimental_distribute_dataset(dataset)
    test_dist_dataset = strategy.experimental_distribute_dataset(dataset)
    with strategy.scope():
        loss_object = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
        model = keras.Sequential(
            [
                layers.Input((3,)),
                layers.Dense(4, "tanh", kernel_regularizer=keras.regularizers.L2(1e-2)),
                layers.Dense(2),
            ]
        )
        optimizer = keras.optimizers.Adam(0.01)
        test_loss = keras.metrics.Mean(name="test_loss")
        train_accuracy = keras.metrics.SparseCategoricalAccuracy()
        test_accuracy = keras.metrics.SparseCategoricalAccuracy()
        checkpoint = tf.train.Checkpoint(optimizer=optimizer, model=model)

    def compute_loss(labels, predictions, model_losses):
        per_example_loss = loss_object(labels, predictions)
        loss = tf.nn.compute_average_loss(per_example_loss)
        if model_losses:
            loss += tf.nn.scale_regularization_loss(tf.add_n(model_losses))
        return loss

    def train_step(inputs):
        images, labels = inputs
        with tf.GradientTape() as tape:
            predictions = model(images, training=True)
            loss = compute_loss(labels, predictions, model.losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        train_accuracy.update_state(labels, predictions)
        return loss

    def test_step(inputs):
        images, labels = inputs
        predictions = model(images, training=False)
        test_loss.update_state(loss_object(labels, predictions))
        test_accuracy.update_state(labels, predictions)

    @tf.function
    def distributed_train_step(dataset_inputs):
        per_replica_losses = strategy.run(train_step, args=(dataset_inputs,))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica_losses, axis=None)

    @tf.function
    def distributed_test_step(dataset_inputs):
        return strategy.run(test_step, args=(dataset_inputs,))

    rows = []
    for _ in range(2):
        losses = [float(distributed_train_step(x)) for x in train_dist_dataset]
        for x in test_dist_dataset:
            distributed_test_step(x)
        metrics = (train_accuracy, test_loss, test_accuracy)
        rows.append([*losses, *(float(metric.result()) for metric in metrics)])
        for metric in metrics:
            metric.reset_state()

    folder = tf.compat.v1.test.get_temp_dir()
    path = checkpoint.save(os.path.join(folder, f"tutorial_{strategy.num_replicas_in_sync}"))
    plain = network()
    tf.train.Checkpoint(model=plain).restore(path).expect_partial()
    return rows, weights(model), weights(plain), plain(examples()[0])


def whole_epochs_in_a_function(strategy):
    """The tutorial's "Iterating inside a tf.function", also with an iterator."""
    dataset = tf.data.Dataset.from_tensor_slices(examples()).batch(BATCH, drop_remainder=True)
    distributed = strategy.experimental_distribute_dataset(dataset)
    with strategy.scope():
        model, optimizer = network(1), keras.optimizers.SGD(0.1, momentum=0.9)

    def replica(x, y):
        with tf.GradientTape() as tape:
            errors = tf.square(model(x)[:, 0] - tf.cast(y, tf.float32))
            loss = tf.nn.compute_average_loss(errors, global_batch_size=BATCH)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    def step(batch):
        return strategy.reduce("SUM", strategy.run(replica, args=batch), axis=None)

    @tf.function
    def epoch(batches):
        total, count = 0.0, 0
        for batch in batches:
            total += step(batch)
            count += 1
        return total / tf.cast(count, tf.float32)

    @tf.function
    def steps(iterator, number):
        loss = 0.0
        for _ in tf.range(number):
            loss = step(next(iterator))
        return loss

    losses = [epoch(distributed), epoch(distributed), steps(iter(distributed), 2)]
    return losses, weights(model), [v.numpy() for v in optimizer.variables]


def eager_loop(strategy):
    with strategy.scope():
        model, optimizer = network(1), keras.optimizers.Adam(0.05)
        mean = keras.metrics.Mean()

    def replica(x, y):
        with tf.GradientTape() as tape:
            errors = tf.square(model(x)[:, 0] - tf.cast(y, tf.float32))
            loss = tf.reduce_sum(errors) / BATCH
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        mean.update_state(errors)
        return errors

    losses = []
    dataset = tf.data.Dataset.from_tensor_slices(examples()).batch(BATCH)
    for batch in strategy.experimental_distribute_dataset(dataset.repeat(2)):
        errors = strategy.run(replica, args=batch)
        losses.append(strategy.gather(errors, axis=0))
        losses.append(strategy.reduce("MEAN", errors, axis=0))
    return losses, mean.result(), weights(model)


def dataset_functions(strategy):
    """Each input pipeline takes the batch size from its `InputContext`."""
    with strategy.scope():
        model, optimizer = network(1), keras.optimizers.SGD(0.1)

    def dataset_fn(context):
        batch = context.get_per_replica_batch_size(BATCH)
        assert context.num_input_pipelines == 1
        return tf.data.Dataset.from_tensor_slices(examples()).batch(batch)

    @tf.function
    def step(iterator):
        def replica(batch):
            x, y = batch
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.square(model(x)[:, 0] - tf.cast(y, tf.float32))) / BATCH
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply(gradients, model.trainable_variables)

        strategy.run(replica, args=(next(iterator),))

    iterator = iter(strategy.distribute_datasets_from_function(dataset_fn))
    step(iterator)
    step(iterator)
    return weights(model)


def two_players(strategy):
    """TensorFlow's DCGAN tutorial: two models, two optimizers, two tapes in one function."""
    with strategy.scope():
        generator = keras.Sequential([layers.Input((2,)), layers.Dense(4, "relu"), layers.Dense(3)])
        discriminator = network(1)
        optimizers = keras.optimizers.Adam(0.01), keras.optimizers.Adam(0.02)
        cross_entropy = keras.losses.BinaryCrossentropy(from_logits=True, reduction="none")

    def replica(real, noise):
        with tf.GradientTape() as generator_tape, tf.GradientTape() as discriminator_tape:
            fake = discriminator(generator(noise, training=True), training=True)
            true = discriminator(real, training=True)
            losses = (
                cross_entropy(tf.ones_like(fake), fake),
                cross_entropy(tf.ones_like(true), true) + cross_entropy(tf.zeros_like(fake), fake),
            )
            losses = [tf.nn.compute_average_loss(loss, global_batch_size=BATCH) for loss in losses]
        for tape, loss, optimizer, model in zip(
            (generator_tape, discriminator_tape),
            losses,
            optimizers,
            (generator, discriminator),
            strict=True,
        ):
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return losses

    @tf.function
    def step(batch):
        losses = strategy.run(replica, args=batch)
        return [strategy.reduce("SUM", loss, axis=None) for loss in losses]

    dataset = tf.data.Dataset.from_tensor_slices((numbers(16, 3), numbers(16, 2, seed=1)))
    batches = strategy.experimental_distribute_dataset(dataset.batch(BATCH).repeat(2))
    return [step(batch) for batch in batches], weights(generator), weights(discriminator)


def module_without_keras(strategy):
    """Plain `tf.Variable`s, with gradients reduced and applied by hand."""
    with strategy.scope():
        w = tf.Variable(tf.ones([3]), aggregation=tf.VariableAggregation.MEAN)
        steps = tf.Variable(
            0, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA
        )
        total = tf.Variable(
            0.0,
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )

    def replica(x, y):
        with tf.GradientTape() as tape:
            errors = tf.square(tf.linalg.matvec(x, w) - tf.cast(y, tf.float32))
            loss = tf.reduce_sum(errors) / BATCH
        gradient = tf.distribute.get_replica_context().all_reduce("SUM", tape.gradient(loss, w))
        w.assign_sub(0.1 * gradient)
        steps.assign_add(1)
        total.assign_add(loss)

    @tf.function
    def step(batch):
        strategy.run(replica, args=batch)

    dataset = tf.data.Dataset.from_tensor_slices(examples()).batch(BATCH)
    for batch in strategy.experimental_distribute_dataset(dataset):
        step(batch)
    return w.numpy(), steps.numpy(), total.numpy()


def restored_before_the_first_step(strategy, in_function=True):
    """The first step after `restore` makes the layers' weights and the optimizer's variables."""
    dataset = tf.data.Dataset.from_tensor_slices(examples()).batch(BATCH)
    batches = strategy.experimental_distribute_dataset(dataset)

    def begin():
        with strategy.scope():
            model = keras.Sequential([layers.Dense(4, "tanh"), layers.Dense(1)])
            optimizer = keras.optimizers.Adam(0.05)

        def replica(x, y):
            with tf.GradientTape() as tape:
                errors = tf.square(model(x)[:, 0] - tf.cast(y, tf.float32))
                loss = tf.nn.compute_average_loss(errors)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply(gradients, model.trainable_variables)
            return loss

        def step(batch):
            return strategy.reduce("SUM", strategy.run(replica, args=batch), axis=None)

        step = tf.function(step) if in_function else step
        return tf.train.Checkpoint(model=model, optimizer=optimizer), step

    checkpoint, step = begin()
    losses = [step(batch) for batch in batches]
    folder = tf.compat.v1.test.get_temp_dir()
    path = checkpoint.save(os.path.join(folder, f"restored_{strategy.num_replicas_in_sync}"))
    restored, step = begin()
    restored.restore(path)
    losses += [step(batch) for batch in batches]
    optimizer = restored.optimizer
    return losses, weights(restored.model), [v.numpy() for v in optimizer.variables]


def restored_before_the_first_eager_step(strategy):
    return restored_before_the_first_step(strategy, in_function=False)


PROGRAMS = [
    tutorial,
    whole_epochs_in_a_function,
    eager_loop,
    dataset_functions,
    two_players,
    module_without_keras,
    restored_before_the_first_step,
    restored_before_the_first_eager_step,
]


class LoopsTest(ClientTest):
    num_replicas = (4,)

    def test_the_tutorial_computes_the_same_on_four_replicas(self):
        self.assert_same_without_strategy([tutorial])

    def test_steps_make_what_a_checkpoint_restored(self):
        self.assert_same_without_strategy([restored_before_the_first_step])

    @pytest.mark.slow
    def test_eager_steps_make_what_a_checkpoint_restored(self):
        self.assert_same_without_strategy([restored_before_the_first_eager_step])


@pytest.mark.long
class AllLoopsTest(ClientTest):
    num_replicas = (1, 4)

    def test_all_programs_compute_the_same(self):
        self.assert_same_without_strategy(PROGRAMS)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
