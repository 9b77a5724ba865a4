"""User programs continue without a lost worker, and take it in again."""

import sys

import pytest

from tests.distribute.elastic import elastic_program_cases, elastic_worker


@pytest.mark.long
class ElasticProgramTest(elastic_program_cases.ElasticProgramCases):
    program = elastic_worker

    def test_a_worker_is_lost_and_comes_back(self):
        self.check_that_a_worker_is_lost_and_comes_back()


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
