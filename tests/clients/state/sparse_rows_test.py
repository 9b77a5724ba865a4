"""Models whose batches use only some rows of a weight, compared with no strategy."""

import sys

import pytest

from tests.clients.comparison import ClientTest
from tests.clients.state import sparse_rows_cases as cases


class SparseRowsTest(ClientTest):
    num_replicas = (2,)

    @pytest.mark.slow
    def test_a_sparse_layer_and_an_embedding_compute_the_same_on_two_replicas(self):
        self.assert_same_without_strategy(
            [
                cases.dense_layer_of_sparse_inputs,
                cases.embeddings_of_positions,
                cases.loop_with_accumulation,
            ]
        )


@pytest.mark.long
class AllSparseRowsTest(ClientTest):
    num_replicas = (4,)

    def test_all_programs_compute_the_same(self):
        self.assert_same_without_strategy(cases.PROGRAMS)


@pytest.mark.long
class OtherReplicasTest(ClientTest):
    num_replicas = (1, 2)

    def test_all_programs_compute_the_same(self):
        self.assert_same_without_strategy(cases.PROGRAMS)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
