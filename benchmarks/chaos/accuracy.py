"""Accuracy of a disturbed run, compared with undisturbed runs."""

import math
import subprocess

from benchmarks.chaos.run import FLAGS, Broken
from benchmarks.lib import cluster_hosts

# Chance, in standard deviations on this number of images.
NUM_TEST_IMAGES = 360
_DEVIATIONS = 2


class Undisturbed:
    """Undisturbed runs in one process, a replica per host; `folder` holds the data in `data`."""

    def __init__(self, folder, hosts, sync_every):
        self._folder, self._hosts, self._sync_every = folder, hosts, sync_every

    def train(self, seed, max_steps):
        """Returns the accuracy of a run with this seed."""
        train_dir = self._folder / f"undisturbed_{seed}"
        own = {"batch_size": self._hosts * FLAGS["batch_size"], "num_nodes": self._hosts}
        own |= {"sync_every": self._sync_every, "seed": seed, "max_steps": max_steps}
        own |= {"data_dir": self._folder / "data", "train_dir": train_dir, "num_gpus": 0}
        ended = subprocess.run(
            cluster_hosts.command("terngrad_tf.bin.mnist_train", **FLAGS | own),
            env=cluster_hosts.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode:
            raise Broken(f"the undisturbed run of seed {seed} failed: {ended.stderr[-2000:]}")
        return self.of(train_dir)

    def of(self, train_dir):
        """Returns the test accuracy of the newest checkpoint in a folder."""
        from terngrad_tf import training

        config = training.EvalConfig.of(
            checkpoint_dir=str(train_dir),
            data_dir=str(self._folder / "data"),
            dataset_name=FLAGS["dataset_name"],
            eval_dir=str(self._folder / "evaluated"),
            subset="test",
            run_once=True,
        )
        return training.evaluate(config).precision_at_1


def check(accuracy, undisturbed):
    """Raises Broken if the accuracy is below the undisturbed runs' by more than chance."""
    least = min(undisturbed)
    chance = _DEVIATIONS * math.sqrt(least * (1 - least) / NUM_TEST_IMAGES)
    if accuracy < least - chance:
        raise Broken(f"accuracy is {accuracy:.4f}, undisturbed {undisturbed}")
