"""The number of steps that a model took."""

import keras

from terngrad_tf.distribute import private


def steps_of(model: keras.Model) -> int:
    """Returns the steps of a model's optimizer.

    If it took none, as where a `train_step` applies others, those of the busiest optimizer among
    the attributes of the model and its layers.
    """
    main = model.optimizer
    done = 0 if main is None else int(main.iterations.numpy())
    if done:
        return done
    held = (optimizer for _, optimizer in private.held_by(model, keras.optimizers.Optimizer))
    return max((int(optimizer.iterations.numpy()) for optimizer in held), default=0)
