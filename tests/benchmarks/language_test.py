"""`benchmarks.language` trains a causal model on text; its page shows the results."""

import json
import math
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import keras
import numpy as np
import pytest

import terngrad_tf
from benchmarks.language import tables, training
from benchmarks.lib.quantizations import quantization

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks/results"


def write_text(folder, characters):
    path = pathlib.Path(folder) / "text.txt"
    letters = np.random.default_rng(0).choice(list("abcdefgh"), characters)
    path.write_text("".join(letters), encoding="utf-8")
    return path


def run(way, rate, seed, bits, held_out_bits):
    return {
        **{"way": way, "rate": rate, "seed": seed, "bits": bits, "held_out_bits": held_out_bits},
        **{"training_bits": 1.5, "received_bytes": 1000.0},
    }


class LanguageTest(unittest.TestCase):
    def setUp(self):
        # A small model is built and compiled sooner.
        patch = mock.patch.object(training, "_BLOCKS", 1)
        patch.start()
        self.addCleanup(patch.stop)

    def folder(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return pathlib.Path(folder.name)

    def test_text_is_divided_into_parts(self):
        path = write_text(self.folder(), 1000)
        parts, num_letters = training.load(path)
        self.assertEqual(num_letters, 8)
        self.assertEqual([len(part) for part in parts.values()], [800, 100, 100])
        text = "".join("abcdefgh"[code] for part in parts.values() for code in part)
        self.assertEqual(text, path.read_text(encoding="utf-8"))

    def test_rare_words_count_as_one(self):
        path = self.folder() / "text.txt"
        frequent = [f"word{number}" for number in range(4095)]
        path.write_text(f"{' '.join(frequent * 2)}, rare and seldom.", encoding="utf-8")
        parts, num_words = training.load(path, words=True)
        self.assertEqual(num_words, 4096)
        codes = np.concatenate(list(parts.values()))
        np.testing.assert_array_equal(codes[:8190], [*range(1, 4096)] * 2)
        np.testing.assert_array_equal(codes[8190:], [0] * 5)

    def test_other_files_are_refused(self):
        folder = self.folder()
        (folder / "bytes").write_bytes(b"\xff" * 1000)
        for path, message in (
            (folder / "missing", "--text must be a text file in UTF-8.*missing"),
            (folder / "bytes", "--text must be a text file in UTF-8.*bytes"),
            (write_text(folder, 600), "--text must hold at least 660 characters.* with 600"),
        ):
            with self.assertRaisesRegex(SystemExit, message):
                training.load(path)
        (folder / "words").write_text("word " * 600, encoding="utf-8")
        with self.assertRaisesRegex(SystemExit, "at least 660 words.* with 600"):
            training.load(folder / "words", words=True)

    def test_ternary_codes_alone_are_never_finer(self):
        bits = [quantization(alone=alone).finer(4).grad_bits for alone in (True, False)]
        self.assertEqual(bits, [1, 4])

    def test_a_tied_model_has_one_matrix_of_symbols(self):
        for tied, expected in ((True, ["embeddings"]), (False, ["embeddings", "kernel"])):
            matrices = [w for w in training.build(8, tied).weights if len(w.shape) == 2]
            names = [w.name for w in matrices if 8 in w.shape]
            self.assertEqual(names, expected)

    def test_predictions_depend_on_earlier_letters_only(self):
        model = training.build(8)
        text = np.random.default_rng(0).integers(0, 8, (1, training.LENGTH))
        other = text.copy()
        other[0, 40] = (text[0, 40] + 1) % 8
        found, changed = (np.array(model(letters)) for letters in (text, other))
        np.testing.assert_array_equal(found[0, :40], changed[0, :40])
        self.assertTrue((found[0, 40:] != changed[0, 40:]).any(axis=-1).all())

    def test_an_untrained_model_needs_all_bits(self):
        parts, num_letters = training.load(write_text(self.folder(), 4000))
        model = training.build(num_letters)
        model.set_weights([np.zeros_like(array) for array in model.get_weights()])
        self.assertAlmostEqual(training.bits_of(model, parts["test"]), 3.0, places=5)

    def test_pieces_depend_on_the_seed_and_targets_are_the_next_letters(self):
        codes = np.arange(1000, dtype="int32")
        batches, again, others = (
            list(training.pieces(codes, seed).take(3).as_numpy_iterator()) for seed in (1, 1, 2)
        )
        for (inputs, targets), (same, _) in zip(batches, again, strict=True):
            self.assertEqual(inputs.shape, (training.BATCH_SIZE, training.LENGTH))
            np.testing.assert_array_equal(targets, inputs + 1)
            np.testing.assert_array_equal(inputs, same)
        self.assertTrue((batches[0][0] != others[0][0]).any())

    def test_training_bits_are_of_the_last_tenth_of_the_steps(self):
        strategy = terngrad_tf.TernGradStrategy(2, grad_bits=32)
        with strategy.scope():
            dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
            model = keras.Sequential([keras.Input([1]), dense])
            model.compile(keras.optimizers.SGD(0.0), "mae")
        x = np.arange(40.0)[:, np.newaxis]
        how = {"batch_size": 2, "shuffle": False, "verbose": 0}
        found = model.fit(x, 0 * x, **how, callbacks=[training.LastTenth(20)])
        self.assertAlmostEqual(found.history["loss"][0], x[36:].mean(), places=5)

    @pytest.mark.slow
    def test_all_steps_are_taken_and_exchange_when_they_should(self):
        made = []

        def optimizer(*args):
            made.append(make(*args))
            return made[-1]

        make = training._optimizer
        parts, num_letters = training.load(write_text(self.folder(), 4000))
        way = "every 8 steps, float"
        with mock.patch.object(training, "_optimizer", optimizer):
            training.train(parts, num_letters, way, 0.003, 1, steps=26)
        counts = [int(each.iterations) for each in (made[0], made[0].outer)]
        # After 8, 16 and 24 steps, and at the end.
        self.assertEqual(counts, [26, 4])

    def test_the_rate_is_that_of_the_fewest_bits_held_out(self):
        ways = ("every 32 steps, ternary", tables.BASELINE)
        runs = [
            run(way, rate, seed, bits * more, held_out)
            for way, more in zip(ways, (1.1, 1), strict=True)
            for rate, held_out in ((0.001, 3.0), (0.003, 2.0))
            for seed, bits in ((1, 2.0), (2, 2.5))
        ]
        _, _, baseline, other = tables.table(runs).split("\n")
        start = f"| {tables.BASELINE} | 0.003 | 2 | 2.2500 (2.0000 to 2.5000) | 1.5000 | 1,000 |"
        self.assertEqual(baseline, f"{start}  |  |")
        self.assertIn("| +0.2250 | 0.070 |", other)
        self.assertIn(f"| {tables.BASELINE} | 0.001: 2.0000, 0.003: 2.0000 |", tables.rates(runs))

    def test_page_shows_the_figures_of_the_runs(self):
        page = (ROOT / "docs/results/language.md").read_text(encoding="utf-8")
        for name, symbol in (
            ("language.jsonl", "character"),
            ("language_words.jsonl", "word"),
            ("language_tied.jsonl", "character"),
            ("language_words_tied.jsonl", "word"),
        ):
            lines = (RESULTS / name).read_text(encoding="utf-8").splitlines()
            runs = [json.loads(line) for line in lines]
            keys = [(run["way"], run["rate"], run["seed"]) for run in runs]
            self.assertEqual(len(keys), len(set(keys)))
            self.assertIn(tables.table(runs, symbol), page)
            if name == "language.jsonl":
                self.assertIn(tables.rates(runs), page)

    @pytest.mark.long
    def test_finished_runs_are_not_repeated(self):
        folder = self.folder()
        ways = ("every step, ternary", "every 8 steps, 4-bit")
        command = [
            *(sys.executable, "-m", "benchmarks.language", "--steps=20", "--seeds=1"),
            *(f"--text={write_text(folder, 8000)}", f"--json={folder / 'found.json'}"),
            *("--learning_rates=0.003", *(f"--ways={way}" for way in ways)),
        ]
        first, second = (
            subprocess.run(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, check=True).stdout
            for _ in range(2)
        )
        self.assertEqual(first.count(" s)\n"), 2, first)
        self.assertEqual(
            second, "2 runs are done, 0 are missing\n" + first[first.index("\n| exch") :]
        )
        runs = json.loads((folder / "found.json").read_text(encoding="utf-8"))["runs"]
        self.assertEqual([run["way"] for run in runs], list(ways))
        for found in runs:
            # Random letters cannot be predicted.
            self.assertGreater(found["bits"], math.log2(8) - 0.05)
            self.assertLess(found["bits"], math.log2(8) + 1)
        self.assertLess(runs[1]["received_bytes"], runs[0]["received_bytes"])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
