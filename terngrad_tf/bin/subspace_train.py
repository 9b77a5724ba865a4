"""Trains a network in the subspace that its earlier weights span.

Example:
    python -m terngrad_tf.bin.subspace_train --data_dir /tmp/digits \\
        --pretrained_weight_path /tmp/stage_1 --train_dir /tmp/stage_2

On several hosts the same command runs on each, with --worker_hosts and --task_id, a rank table,
Slurm or TF_CONFIG. The chief alone needs the folders but that of the data, evaluates and draws.
"""

from terngrad_tf.bin import experiments, flags, host_flags, subspace_flags


def _train(values):
    from terngrad_tf import training
    from terngrad_tf.training import boost_config, callbacks, final_evaluation, subspace_picture

    boost_config.check_level(values.boost_level)
    if values.boost_config:
        config = boost_config.read(values.boost_config)
        for notice in config.notices:
            callbacks.log(notice)
        for name, value in config.options.items():
            values.set_default(name, value)
    options = flags.options(values, training.SubspaceOptions)
    result = training.train_in_subspace(options, **host_flags.arguments(values))
    if not result.is_chief:
        return
    final_evaluation.evaluate(
        result.checkpoint, options.train_dir, options.data_dir, values.eval_subset
    )
    path = subspace_picture.draw(options, result, values.eval_subset)
    print(f"Picture: {path}", flush=True)


PROGRAM = experiments.Program(
    "Trains a network in the subspace that its earlier weights span, by P-BFGS or P-SGD.",
    subspace_flags.define,
    _train,
    "terngrad_tf.bin.subspace_train",
)
define_flags, main, run = PROGRAM.define_flags, PROGRAM.main, PROGRAM.run

if __name__ == "__main__":
    run()
