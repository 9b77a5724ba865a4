"""TensorBoard shows weights and ternary gradients of every variable."""

import collections
import contextlib
import io
import pathlib
import sys
import tempfile
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf import models, training
from terngrad_tf.distribute import TernaryAllReduce


def summaries(folder):
    """Returns {tag: {step: (name of TensorBoard's plugin, array)}}."""
    found = collections.defaultdict(dict)
    for path in pathlib.Path(folder).glob("events.*"):
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            event = tf.compat.v1.Event.FromString(record)
            for value in event.summary.value:
                plugin = value.metadata.plugin_data.plugin_name
                found[value.tag][event.step] = plugin, tf.make_ndarray(value.tensor)
    return found


class SummariesTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.variables = models.build("lenet", num_classes=10).trainable_variables

    def train(self, **changes):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        options = training.TrainConfig.of(
            train_dir=folder.name,
            data_dir="nowhere",
            dataset_name="mnist",
            benchmark_mode=True,
            batch_size=4,
            save_iter=2,
            num_nodes=2,
            **{"max_steps": 4, **changes},
        )
        with contextlib.redirect_stdout(io.StringIO()):
            training.train(options)
        return summaries(folder.name)

    def test_ternary_gradients_are_counted_by_value_and_the_wire_is_logged(self):
        # A single process chooses no wire.
        with mock.patch.object(TernaryAllReduce, "wire_choices", ["auto takes it"]):
            found = self.train(grad_bits=1, clip_factor=2.5, quantize_logits=True)
        self.assertAllEqual(found["traffic/wire_choices"][1][1], [b"auto takes it"])
        for variable in self.variables:
            sparsities = found[f"ternary/{variable.path}/sparsity"]
            histograms = found[f"ternary/{variable.path}/gradients"]
            self.assertEqual(sorted(sparsities), [1, 3])
            self.assertEqual(sorted(histograms), [1, 3])
            for step, (plugin, rows) in histograms.items():
                self.assertEqual(plugin, "histograms")
                self.assertEqual(rows.shape, (3, 3))
                scale = rows[2, 0]
                self.assertAllEqual(rows[:, :2], [[-scale, -scale], [0, 0], [scale, scale]])
                self.assertEqual(np.sum(rows[:, 2]), np.prod(variable.shape))
                self.assertAllClose(sparsities[step][1], rows[1, 2] / np.sum(rows[:, 2]))

    @pytest.mark.slow
    def test_changes_of_local_steps_are_counted_when_all_are_exchanged(self):
        found = self.train(grad_bits=1, quantize_logits=True, sync_every=2, max_steps=6)
        for variable in self.variables:
            # Of the exchanges after the second, fourth and sixth step.
            self.assertEqual(sorted(found[f"ternary/{variable.path}/gradients"]), [2, 4, 6])
            self.assertEqual(sorted(found[f"ternary/{variable.path}/sparsity"]), [2, 4, 6])

    @pytest.mark.slow
    def test_weights_are_shown_at_every_save(self):
        found = self.train(grad_bits=32)
        for variable in self.variables:
            plugin, rows = found[f"weights/{variable.path}"][4]
            self.assertEqual(plugin, "histograms")
            self.assertEqual(np.sum(rows[:, 2]), np.prod(variable.shape))
            self.assertEqual(sorted(found[f"weights/{variable.path}"]), [2, 4])
        self.assertEmpty([tag for tag in found if "ternary" in tag])

    @pytest.mark.long
    def test_a_step_with_float_gradients_shows_no_ternary_ones(self):
        # LeNet's 1,256,080 gradients in a ring of two, four bytes each.
        found = self.train(grad_bits=1, floating_grad_epoch=1, max_steps=10)
        self.assertEmpty([tag for tag in found if "ternary" in tag])
        self.assertEqual(found["traffic/received_bytes"][10][1], 4 * 1256080)
        self.assertEqual(found["traffic/compression_ratio"][10][1], 1.0)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
