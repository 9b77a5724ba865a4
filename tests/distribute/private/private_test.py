"""Pins each private name that `private/` uses; if a release moves one, a test names it."""

import importlib.metadata
import inspect
import re
import subprocess
import sys
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src import ops as keras_ops
from keras.src.backend.tensorflow import optimizer as keras_tf_optimizer
from keras.src.losses import loss as keras_loss
from keras.src.optimizers import base_optimizer as keras_base_optimizer
from keras.src.random import seed_generator as keras_random
from keras.src.trainers import epoch_iterator
from keras.src.trainers.data_adapters import (
    array_data_adapter,
    data_adapter_utils,
    generator_data_adapter,
    grain_dataset_adapter,
    py_dataset_adapter,
    torch_data_loader_adapter,
)
from keras.src.utils import tracking as keras_tracking
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.autograph.core import ag_ctx
from tensorflow.python.autograph.impl import api as autograph
from tensorflow.python.data.ops import cache_op, multi_device_iterator_ops, shuffle_op
from tensorflow.python.distribute import (
    collective_all_reduce_strategy,
    collective_util,
    cross_device_ops,
    cross_device_utils,
    device_util,
    distribute_lib,
    distribute_utils,
    input_lib,
    mirrored_run,
    mirrored_strategy,
    values,
)
from tensorflow.python.eager import context, record
from tensorflow.python.eager.polymorphic_function import atomic_function, polymorphic_function
from tensorflow.python.framework import (
    auto_control_deps,
    auto_control_deps_utils,
    func_graph,
    ops,
    random_seed,
)
from tensorflow.python.ops import (
    collective_ops,
    control_flow_util,
    handle_data_util,
    resource_variable_ops,
)

from terngrad_tf import releases
from terngrad_tf.distribute import TernaryAllReduce, TernGradStrategy, private
from terngrad_tf.distribute.private import patches
from terngrad_tf.distribute.private.keras_names import TensorFlowTrainer
from tests.distribute import optimizer_cases


def parameters(function):
    return list(inspect.signature(function).parameters)


class PrivateTest(tf.test.TestCase):
    def test_tensorflow_still_has_every_name(self):
        for owner, names in (
            (context.Context, ["ensure_initialized"]),
            (control_flow_util, ["GraphOrParentsInXlaContext"]),
            (distribute_utils, ["is_mirrored", "regroup", "select_replica", "update_regroup"]),
            (distribute_lib, ["ReplicaContext", "UpdateContext"]),
            (distribute_lib.ReplicaContext, ["_merge_call", "replica_id_in_sync_group"]),
            (
                input_lib,
                [
                    "DistributedDataset",
                    "DistributedDatasetSpec",
                    "DistributedIterator",
                    "DistributedIteratorSpec",
                    "InputWorkers",
                    "_create_distributed_tensor_spec",
                ],
            ),
            (tf.TensorSpec, ["_batch", "_unbatch"]),
            (
                cross_device_utils,
                [
                    "CollectiveKeys",
                    "aggregate_tensors_or_indexed_slices",
                    "divide_by_n_tensors_or_indexed_slices",
                ],
            ),
            (cross_device_ops, ["CollectiveAllReduce"]),
            (device_util, ["canonicalize"]),
            (ag_ctx, ["control_status_ctx"]),
            (autograph, ["tf_convert"]),
            (record, ["stop_recording"]),
            (atomic_function, ["from_func_graph", "from_function_def"]),
            (atomic_function.AtomicFunction, ["_children", "cached_definition", "function_type"]),
            (auto_control_deps.AutomaticControlDependencies, ["__enter__", "__exit__"]),
            (
                auto_control_deps_utils,
                [
                    "READ_ONLY_RESOURCE_INPUTS_ATTR",
                    "RESOURCE_READ_OPS",
                    "get_read_only_resource_input_indices_graph",
                ],
            ),
            (func_graph.FuncGraph, ["captures", "output_types"]),
            (ops, ["EagerTensor", "get_default_graph", "set_int_list_attr", "uid"]),
            (ops.Graph, ["_add_function_recursive", "as_default", "create_op"]),
            (ops.Graph, ["_add_function"]),
            (ops.Operation, ["_add_outputs", "_is_stateful"]),
            (ops.Operation, ["_set_func_attr", "_set_type_list_attr"]),
            (random_seed, ["_graph_to_seed_dict"]),
            (attr_value_pb2, ["AttrValue", "NameAttrList"]),
            (handle_data_util, ["copy_handle_data"]),
            (resource_variable_ops, ["_UnreadVariable"]),
            (mirrored_run, ["call_for_each_replica"]),
            (values, ["DistributedVariable", "Mirrored", "PerReplica", "PerReplicaSpec"]),
            (collective_util, ["CommunicationImplementation", "Options"]),
            (polymorphic_function.Function, ["__call__", "_clone", "python_function"]),
            (
                mirrored_strategy.MirroredExtended,
                [
                    "_call_for_each_replica",
                    "_batch_reduce_to",
                    "_broadcast_to",
                    "_container_strategy",
                    "_create_variable",
                    "_experimental_distribute_dataset",
                    "_gather_to_implementation",
                    "_get_replica_id_in_sync_group",
                    "_input_workers",
                    "_num_replicas_in_sync",
                    "_input_workers_with_options",
                    "_reduce_to",
                    "_update",
                    "_update_non_slot",
                ],
            ),
            (
                collective_all_reduce_strategy.CollectiveAllReduceExtended,
                [
                    "_get_cross_device_ops",
                    "_get_variable_creator_initial_value",
                    "_initialize_local_devices",
                    "_make_input_context",
                ],
            ),
            (
                cross_device_utils.CollectiveReplicaLauncher,
                [
                    "_all_gather",
                    "_get_ordering_token",
                    "_next_instance_key",
                    "_use_unique_instance_key",
                    "all_reduce",
                ],
            ),
            (values.MirroredVariable, ["_update_replica", "_get_on_device_or_primary"]),
            (values.DistributedVariable, ["_get_replica", "distribute_strategy"]),
            (tf.data.Dataset, ["_inputs"]),
            (shuffle_op, ["_ShuffleDataset"]),
            (cache_op, ["CacheDataset"]),
            (context, ["global_seed"]),
        ):
            for name in names:
                self.assertTrue(hasattr(owner, name), f"{owner.__name__}.{name}")

    def test_tensorflow_functions_still_take_the_same_arguments(self):
        for function, expected in (
            (mirrored_run.call_for_each_replica, ["strategy", "fn", "args", "kwargs"]),
            (values.MirroredVariable._update_replica, ["self", "update_fn", "value", "kwargs"]),
            (
                collective_all_reduce_strategy.CollectiveAllReduceExtended._initialize_local_devices,
                ["self", "cluster_resolver", "worker_device"],
            ),
            (
                cross_device_utils.CollectiveReplicaLauncher.__init__,
                ["self", "group_key", "group_size", "collective_keys", "device", "options"],
            ),
        ):
            self.assertEqual(parameters(function), expected, function.__qualname__)
        for collective in ("all_reduce_v2", "all_gather_v2", "all_to_all_v2"):
            arguments = parameters(getattr(collective_ops, collective))
            self.assertContainsSubset(
                {"group_size", "group_key", "instance_key", "timeout", "ordering_token"},
                set(arguments),
            )

    def test_the_flags_of_the_context_are_where_they_were(self):
        tf.config.list_logical_devices()
        self.assertTrue(private.devices_are_initialized())
        self.assertIsNone(context.context()._collective_ops_server_def)
        source = inspect.getsource(
            collective_all_reduce_strategy.CollectiveAllReduceExtended._initialize_multi_worker
        )
        self.assertIn("_std_server_started", source)
        self.assertIn("_enable_check_health", source)

    def test_keras_still_has_every_name(self):
        for owner, name, expected in (
            (keras_tf_optimizer, "filter_empty_gradients", ["grads_and_vars"]),
            (keras_base_optimizer.BaseOptimizer, "_get_variable_index", ["self", "variable"]),
            (keras_tracking, "no_automatic_dependency_tracking", ["fn"]),
        ):
            self.assertTrue(hasattr(owner, name), f"{owner.__name__}.{name}")
            self.assertEqual(parameters(getattr(owner, name)), expected, name)

    def test_data_sets_still_have_what_processes_agree_on(self):
        shuffled = tf.data.Dataset.range(4).shuffle(2)
        for dataset in (shuffled, tf.data.Dataset.random()):
            for name in ("_seed", "_seed2"):
                self.assertTrue(hasattr(dataset, name), name)
        self.assertTrue(shuffled._reshuffle_each_iteration)
        strategy = TernGradStrategy(2)
        for distributed in (
            strategy.experimental_distribute_dataset(shuffled.batch(2)),
            strategy.distribute_datasets_from_function(lambda _: shuffled.batch(2)),
        ):
            for name in ("_cardinality", "_enable_get_next_as_optional"):
                self.assertTrue(hasattr(distributed, name), name)
        (dataset,) = distributed._datasets
        self.assertIsInstance(dataset, tf.data.Dataset)

    def test_keras_adapters_still_have_what_processes_agree_on(self):
        arrays = array_data_adapter.ArrayDataAdapter(np.zeros([4, 1]), batch_size=2, shuffle=True)
        for name in ("_inputs", "_num_samples", "_batch_size", "_shuffle"):
            self.assertTrue(hasattr(arrays, name), name)
        for module in (generator_data_adapter, py_dataset_adapter, torch_data_loader_adapter):
            self.assertIn("data_adapter_utils.get_tensor_spec(", inspect.getsource(module))
        specs = inspect.getsource(data_adapter_utils.get_tensor_spec)
        self.assertIn("get_keras_tensor_spec(batches)", specs)
        grain = inspect.getsource(grain_dataset_adapter)
        self.assertIn("data_adapter_utils.get_keras_tensor_spec(batches)", grain)
        adapter = inspect.getsource(py_dataset_adapter.PyDatasetAdapter)
        self.assertIn("return self._finite_generator()", adapter)
        self.assertIn("def _standardize_batch(self, batch)", adapter)
        finite = inspect.getsource(py_dataset_adapter.PyDatasetAdapter._finite_generator)
        run = inspect.getsource(py_dataset_adapter.OrderedEnqueuer._run)
        for source, epoch in ((finite, "self._epoch"), (run, "self.epoch")):
            self.assertRegex(source, rf"random(\.Random\({epoch}\))?\.shuffle\(indices\)")
        self.assertEqual("self._epoch" in adapter, "random.shuffle(indices)" not in adapter)
        self.assertLess(run.index("self.indices = "), run.index("self._send_py_dataset()"))
        self.assertLess(run.index("self._send_py_dataset()"), run.index("next(self.indices)"))
        iterator = inspect.getsource(epoch_iterator.EpochIterator.__init__)
        self.assertIn("data_adapters.get_data_adapter(", iterator)

    def test_keras_calls_wrapped_functions_by_the_wrapped_names(self):
        """A hook that Keras does not call would fail silently."""
        TernaryAllReduce()
        source = inspect.getsource(keras_ops.core.Cond)
        self.assertRegex(source, r"backend\.(ops\.)?core\.cond")
        source = inspect.getsource(keras_tf_optimizer.TFOptimizer._backend_update_step)
        self.assertIn("self._all_reduce_sum_gradients(", source)
        self.assertIn("self._distributed_tf_update_step", source)
        source = inspect.getsource(keras_base_optimizer)
        self.assertEqual(source.count("self._clip_gradients("), 2)
        self.assertIn("self._backend_update_step(", source)
        self.assertIn("self._accumulated_gradients = []", source)
        source = inspect.getsource(keras_loss.reduce_values)
        self.assertIn("scale_loss_for_distribution(", source)
        source = inspect.getsource(keras.optimizers.LossScaleOptimizer._tf_apply)
        self.assertIn("self.check_finite", source)
        source = inspect.getsource(TensorFlowTrainer)
        self.assertIn("reduce_per_replica(", source)
        self.assertIn("self._maybe_symbolic_build(", source)
        self.assertIn("one_step_on_data", source)
        self.assertIn("self.make_train_function()", source)
        self.assertIn("self.make_test_function()", source)
        self.assertIn("seed.next(", inspect.getsource(keras_random.draw_seed))
        source = inspect.getsource(TensorFlowTrainer.fit)
        self.assertIn("callbacks.on_train_batch_end(", source)
        self.assertIn("callbacks.on_epoch_end(", source)
        source = inspect.getsource(TensorFlowTrainer.compile)
        self.assertIn("self._compile_config = serialization_lib.SerializableDict(", source)

    def test_optimizers_still_have_the_averages_that_are_corrected(self):
        names = {
            "Adam": ("_velocities",),
            "Nadam": ("_velocities",),
            "Lamb": ("_velocities", "_momentums"),
            "RMSprop": ("_velocities", "_average_gradients"),
            "Adagrad": ("_accumulators",),
            "Adamax": ("_u", "_m"),
            "Adafactor": ("_r", "_c", "_v"),
            "Muon": ("adam_velocities",),
        }
        # Muon of Keras 3.12 looks variables up by path, and trains no variables under a strategy.
        names = {name: slots for name, slots in names.items() if name in optimizer_cases.CLASSES}
        for name, slots in names.items():
            optimizer = getattr(keras.optimizers, name)()
            optimizer.build([keras.Variable(np.zeros([3, 3]), name="kernel")])
            for slot in slots:
                self.assertIsInstance(getattr(optimizer, slot), list, f"{name}.{slot}")
        if "Muon" in names:
            self.assertFalse(optimizer._should_use_adamw(keras.Variable(np.zeros([3, 3]))))
        self.assertEqual(keras.optimizers.Adafactor().clip_threshold, 1.0)

    def test_a_cluster_captures_its_variables_as_handles_that_know_them(self):
        with TernGradStrategy(2).scope():
            variable = tf.Variable(1.0)
        graph = tf.function(lambda: variable + 1.0).get_concrete_function().graph
        ((handle, _),) = graph.captures
        self.assertIs(handle._distributed_container(), variable)
        source = inspect.getsource(
            collective_all_reduce_strategy.CollectiveAllReduceExtended._get_variable_creator_initial_value
        )
        self.assertIn("broadcast_send", source)

    def test_hooks_leave_other_strategies_alone(self):
        TernaryAllReduce()
        strategy = tf.distribute.MirroredStrategy(
            ["CPU:0", "CPU:1"], tf.distribute.ReductionToOneDevice()
        )
        with strategy.scope():
            variable = keras.Variable(tf.zeros([3]))
            optimizer = keras.optimizers.SGD(1.0)
            optimizer.build([variable])

        @tf.function
        def step():
            strategy.run(lambda: optimizer.apply([tf.constant([0.3, 0.7, -0.2])], [variable]))

        step()
        self.assertAllClose(variable.numpy(), [-0.6, -1.4, 0.4])

    def test_buffers_of_other_strategies_are_still_tuned(self):
        TernGradStrategy(2)
        tuned = []
        stock = multi_device_iterator_ops._create_device_dataset

        def watched(*args, **kwargs):
            dataset = stock(*args, **kwargs)
            tuned.append(dataset.options().autotune.enabled)
            return dataset

        dataset = tf.data.Dataset.range(8).batch(4)
        devices = ["CPU:0", "CPU:1"]
        with mock.patch.object(multi_device_iterator_ops, "_create_device_dataset", watched):
            for strategy, expected in (
                (tf.distribute.MirroredStrategy(devices), None),
                (TernGradStrategy(2), False),
                (tf.distribute.MirroredStrategy(devices), None),
            ):
                for distributed in (
                    strategy.experimental_distribute_dataset(dataset),
                    strategy.distribute_datasets_from_function(lambda _: dataset),
                ):
                    next(iter(distributed))
                    self.assertEqual(set(tuned), {expected})
                    tuned.clear()

    def test_another_backend_of_keras_is_refused(self):
        # Keras would ignore the strategy. No other backend is installed here.
        code = (
            "import keras; keras.config.backend = lambda: 'torch'; "
            "import terngrad_tf; terngrad_tf.TernGradStrategy"
        )
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertRegex(run.stderr, "ImportError: .* backend='torch'. Set .* KERAS_BACKEND")

    def test_two_strategies_have_different_collective_keys(self):
        first, second = TernGradStrategy(1), TernGradStrategy(1)
        self.assertNotEqual(
            first.extended._collective_key_base, second.extended._collective_key_base
        )


class PatchesTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        patches.uninstall_patches()
        self.addCleanup(patches.install_patches)

    def owned(self):
        return [vars(entry.owner).get(entry.name) for entry in patches.manifest]

    def test_each_patch_fits_the_release_and_has_a_reason(self):
        self.assertGreater(len(patches.manifest), 20)
        for entry in patches.manifest:
            entry.check()
            self.assertTrue(entry.replacement.__doc__, entry)

    def test_installing_twice_and_uninstalling_restores_the_originals(self):
        stock = self.owned()
        patches.install_patches()
        installed = self.owned()
        patches.install_patches()
        self.assertTrue(all(a is b for a, b in zip(installed, self.owned(), strict=True)))
        self.assertFalse(any(a is b for a, b in zip(installed, stock, strict=True)))
        patches.uninstall_patches()
        self.assertTrue(all(a is b for a, b in zip(stock, self.owned(), strict=True)))

    def test_a_release_that_does_not_fit_gives_one_line_and_no_replacement(self):
        stock = self.owned()
        for name, replacement, wanted, received in (
            (
                "scale_loss_for_distribution",
                lambda stock, value, more: None,
                "value, more",
                "value",
            ),
            ("scale_loss", lambda stock, value, *args: None, "value", "nothing of this name"),
        ):
            wrong = patches.Patch(keras_loss, name, replacement)
            message = (
                r"^terngrad_tf is tested with tensorflow .* not with .*"
                rf"`keras.src.losses.loss.{name}` must take {wanted}. Received: {received}$"
            )
            with mock.patch.object(patches, "manifest", [*patches.manifest, wrong]):
                with self.assertRaisesRegex(RuntimeError, message):
                    TernaryAllReduce()
            self.assertTrue(all(a is b for a, b in zip(stock, self.owned(), strict=True)))

    def test_a_release_that_lacks_a_private_name_gives_one_line(self):
        code = """if True:
            import os, sys
            from keras.src.backend.tensorflow import trainer

            for name in sys.argv[1:]:
                if not os.fork():
                    delattr(trainer, name)
                    from terngrad_tf.distribute import TernGradStrategy
                os.wait()
        """
        names = (TensorFlowTrainer.__name__, "TFEpochIterator")
        run = subprocess.run([sys.executable, "-c", code, *names], capture_output=True, text=True)
        last = [line for line in run.stderr.splitlines() if line.startswith("RuntimeError")]
        for line, lacks in zip(
            last,
            (
                "no keras.src.backend.tensorflow.trainer:TensorFlowTrainer",
                "module 'keras.src.backend.tensorflow.trainer' has no attribute",
            ),
            strict=True,
        ):
            self.assertRegex(line, f"^RuntimeError: terngrad_tf is tested with .*: {lacks}")
        self.assertEqual(run.stderr.splitlines()[-1], last[-1])
        with self.assertRaisesRegex(ImportError, "nothing"), releases.explained():
            raise ImportError("nothing of a user's", name="own")

    def test_tested_releases_are_the_ends_of_the_required_range(self):
        required = "\n".join(importlib.metadata.requires("terngrad_tf"))
        for package, (first, last) in releases.TESTED.items():
            major, minor = map(int, last.split("."))
            (found,) = set(re.findall(rf"^{package}(?:<[\d.]+,>=|>=)([\d.]+)", required, re.M))
            self.assertEqual(found, first)
            self.assertRegex(required, rf"(?m)^{package}[<>=,\d.]*<{major}\.{minor + 1}\b")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
