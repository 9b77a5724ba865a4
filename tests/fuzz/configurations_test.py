"""JSON of clusters, runs and boosts is accepted, or one line gives the reason."""

import json
import os
import pathlib
import sys
from unittest import mock

import pytest
from hypothesis import strategies as st

from terngrad_tf.bin.common import program
from terngrad_tf.distribute import cluster_from_rank_table, cluster_from_tf_config
from terngrad_tf.distribute.telemetry import callback
from terngrad_tf.phase_2 import boost_config
from terngrad_tf.training.storage import run_folder
from tests.fuzz import fuzzing
from tests.slim_data import samples

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, -1, 1, 2**31, 2**63, 10**29, 10**400, 0.5, -0.0, 1e308, float("nan")]),
    st.sampled_from(
        ["", "\0", "\x1b[2J", "x" * 10**5, "a:1", "worker", "\ud800", "\u202e", "0" * 40]
    ),
    st.recursive(
        st.integers(-2, 3) | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
        max_leaves=6,
    ),
)
DEEP = st.sampled_from(["[" * 10**5, '{"a":' * 40 + "1" + "}" * 40, "[" * 31 + "]" * 31, "{", ""])

TASK = {"type": "worker", "index": 1}
TF_CONFIGS = [
    {"cluster": {"worker": ["a:1", "b:1"]}, "task": TASK},
    {"cluster": {"chief": ["c:1"], "worker": ["a:1", "[fe80::1]:1"], "ps": ["d:1"]}, "task": TASK},
    {"task": TASK | {"index": 0}, "rpc_layer": "grpc", "environment": "cloud"},
]
DEVICES = [{"device_id": "0", "device_ip": f"10.0.0.{i}", "rank_id": str(i)} for i in range(2)]
SERVER = {"server_id": "10.0.0.1", "device": DEVICES, "host_nic_ip": "reserve"}
RANK_TABLES = [
    {"version": "1.0", "server_count": "1", "server_list": [SERVER], "status": "completed"}
]
DIM_REDUCE = {"rho": 0.5, "alpha": 0, "n_components": 4, "pca_mat_path": "a.npy", "timeout": 9}
BOOSTS = [
    {
        "boost": {"mode": "manual", "dim_reduce": True, "adasum": False},
        "common": {"device_number": 2},
        "dim_reduce": DIM_REDUCE,
    }
]
RUNS = [
    {
        "identity": {
            "dataset_name": "digits",
            "net": "lenet",
            "optimizer": "adam",
            "image_size": 28,
            "batch_size": 8,
            "seed": 1,
            "num_nodes": 1,
            "size_to_binarize": 1,
            "weight_decay": 0.0,
            "dropout_keep_prob": 0.5,
            "label_smoothing": 0.0,
        },
        "max_steps": 4,
        "model": {"net": "lenet", "num_classes": 10, "image_size": 28, "channels": 1},
    }
]


def places(value, path=()):
    """Yields the paths of all nested values."""
    yield path
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


@st.composite
def changed(draw, values):
    """Changes, adds or removes keys and values of JSON at one or two places."""
    value = json.loads(json.dumps(draw(st.sampled_from(values))))
    for _ in range(draw(st.integers(1, 2))):
        *path, key = draw(st.sampled_from([p for p in places(value) if p] or [(None,)]))
        inner = value
        for step in path:
            inner = inner[step]
        kind = draw(st.sampled_from(["set", "set", "remove", "add"]))
        if not isinstance(inner, (dict, list)) or key is None:
            return json.dumps(draw(ODD))
        if kind == "remove":
            del inner[key]
        elif kind == "add" and isinstance(inner, dict):
            inner[draw(st.text(max_size=4) | st.just("x" * 10**5))] = draw(ODD)
        else:
            inner[key] = draw(ODD)
    return json.dumps(value)


def hostile(values):
    """Returns a strategy of damaged JSON and of other bytes."""
    seeds = [json.dumps(value).encode() for value in values]
    texts = changed(values) | ODD.map(json.dumps) | DEEP
    return texts.map(str.encode) | fuzzing.mutated(seeds)


class ConfigurationsTest(fuzzing.FuzzTest):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(samples.new_folder(self))

    def test_tf_configs(self):
        def check(content):
            text = content.decode("utf-8", "surrogateescape").replace("\0", " ")
            with mock.patch.dict(os.environ, TF_CONFIG=text):
                try:
                    resolver = cluster_from_tf_config()
                except ValueError as error:
                    self.assert_clear(program.one_line(error), "environment variable TF_CONFIG")
                    return
                # TensorFlow must accept every valid TF_CONFIG.
                resolver.cluster_spec().as_dict()
                self.assertIsInstance(resolver.task_id, (int, type(None)))

        self.fuzz("TF_CONFIG", hostile(TF_CONFIGS), check)

    def test_rank_tables(self):
        check = self.check_of(
            self.folder / "table.json", lambda path: cluster_from_rank_table(path, 0)
        )
        self.fuzz("rank tables", hostile(RANK_TABLES), check)

    def test_boost_configs(self):
        check = self.check_of(self.folder / "boost.json", boost_config.read_boost_config)
        self.fuzz("boost_config", hostile(BOOSTS), check)

    def test_runs(self):
        check = self.check_of(
            self.folder / run_folder.RUN_FILE, lambda path: run_folder.read_run(path.parent)
        )
        self.fuzz("run.json", hostile(RUNS), check)

    def test_lines_of_telemetry(self):
        good = [json.dumps({"step": step, "cosine": 0.9}) for step in (4, 8)]
        path = self.folder / callback.FILE

        def check(content):
            # A hostile line hides neither the line before it nor the line after it.
            line = content.replace(b"\n", b" ").replace(b"\r", b" ")
            path.write_bytes(b"\n".join([good[0].encode(), line, good[1].encode()]))
            found = set(callback.read_records(path))
            self.assertLessEqual({4, 8}, found)
            self.assertTrue(all(isinstance(step, int) for step in found))

        records = [{"step": 12, "cosine": 0.9, "step_seconds": None}]
        self.fuzz("lines of telemetry", hostile(records), check)

    def test_seeds_are_accepted(self):
        for values, name, read in (
            (RANK_TABLES, "table.json", lambda path: cluster_from_rank_table(path, 0)),
            (BOOSTS, "boost.json", boost_config.read_boost_config),
            (RUNS, run_folder.RUN_FILE, lambda path: run_folder.read_run(path.parent)),
        ):
            for value in values:
                (self.folder / name).write_text(json.dumps(value))
                read(self.folder / name)
        for value in TF_CONFIGS:
            with mock.patch.dict(os.environ, TF_CONFIG=json.dumps(value)):
                cluster_from_tf_config()


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
