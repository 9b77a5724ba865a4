"""Tests of values that real processes share before and after training, on loopback."""

import json
import pathlib
import sys

import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf.distribute import StepAgreement, TernGradStrategy, all_gather_object, run_on_all
from tests.distribute import processes

WORKER = pathlib.Path(__file__).with_name("coordination_worker.py")


class AgreementTest(tf.test.TestCase):
    def test_hosts_share_values_failures_and_the_variables_of_the_chief(self):
        results = processes.run(WORKER, 2, self.get_temp_dir(), num_local=2)
        chief = results[0]
        for index, result in enumerate(results):
            self.assertAllEqual(result["shared"], [[0, 1], [1, 2]])
            self.assertEqual(result["of_chief"], "worker 0")
            for what, failing in (("each", 1), ("chief", 0)):
                error = str(result[f"failed/{what}"])
                if index == failing:
                    self.assertEqual(error, "ValueError: too small")
                else:
                    self.assertRegex(
                        error, rf"^PeerError: worker {failing} \(.*\) ended: too small$"
                    )
            total = [[4 / 3, 4e300], [0.0, 0.0]][index]
            np.testing.assert_allclose(result["total"], total, rtol=1e-15)
            # Two processes with two replicas of a row each.
            self.assertEqual(str(result["nothing"]), "[[0, 3], [4, 4], [0, 4]]")
            self.assertEqual(result["agreed_steps"], chief["agreed_steps"])
            self.assertEqual(str(result["asked_late"]), ['{"save": 0}', "{}"][index])
            # The chief sends equal values once, after a number that announces their size.
            self.assertEqual(result["sent_words"], 1000 + 1)
            self.assertAllEqual(result["sent"], [1.0] * 5000 + [0.0] * 2000)
            self.assertEqual(str(result["found"]), '[{"worker 1": ["w2", "w3"]}, {}]')
            self.assertEqual(result["equalized"], bytes(2 * 4 * (1 + 2 + 3)))
            names = [name for name in result if name.startswith("variable/")]
            self.assertLen(names, 17)
            for name in names:
                self.assertEqual(result[name].tobytes(), chief[name].tobytes(), msg=name)
        *saves, (last, *stop) = json.loads(str(chief["agreed_steps"]))
        self.assertEqual(stop, ["stop", 1])
        self.assertGreaterEqual(last, 13)
        # The slow process may ask a second time.
        self.assertEqual(saves[0][1:], ["save", 1])
        self.assertAllEqual(chief["variable/float32/0"], chief["before"])
        self.assertNotAllEqual(results[1]["before"], chief["before"])

    def test_one_process_has_only_itself(self):
        strategy = TernGradStrategy(2)
        with StepAgreement(strategy, first_step=3) as agreement:
            agreement.ask("stop")
            self.assertEqual([agreement.reached(step) for step in (4, 5)], [{"stop": 0}, {}])
        self.assertEqual(all_gather_object(strategy, "place", 7), [7])
        with self.assertRaisesRegex(ZeroDivisionError, "by zero"):
            run_on_all(strategy, "quotient", lambda: 1 // 0)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
