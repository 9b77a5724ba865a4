"""The page on embeddings shows the results of `benchmarks.embeddings`."""

import json
import pathlib
import sys

import pytest
import tensorflow as tf

from benchmarks.embeddings import tables, training

ROOT = pathlib.Path(__file__).resolve().parents[2]


class EmbeddingsResultsTest(tf.test.TestCase):
    def test_the_page_has_the_table_of_the_runs(self):
        found = json.loads((ROOT / "benchmarks/results/embeddings.json").read_text())
        page = (ROOT / "docs/results/embeddings.md").read_text(encoding="utf-8")
        self.assertIn(tables.table(found["rows"]), page)

    def test_verses_become_numbers_of_words(self):
        path = pathlib.Path(self.get_temp_dir()) / "verses.txt"
        verses = [f"Ge1:{n} In the beginning" for n in range(1, 6)] + ["1Jn1:1 The word"]
        path.write_text("\n".join(verses))
        (x, y), (test_x, test_y) = training.load(path)
        self.assertEqual([y.tolist(), test_y.tolist()], [[0, 0, 0, 0], [0, 1]])
        self.assertAllEqual(x[0, :4] > 0, [True, True, True, False])
        # "the" is the most frequent word.
        self.assertEqual([x[0, 1], test_x[1, 0]], [2, 2])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
