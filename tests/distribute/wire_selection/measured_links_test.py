"""Links of any rate and delay are measured in bounded time; messages are simulated."""

import sys
from unittest import mock

import pytest
import tensorflow as tf
from absl.testing import parameterized

from terngrad_tf.distribute.wire_selection import links


class _Processes:
    """Two processes whose messages take simulated seconds."""

    size, rank = 2, 0

    def __init__(self, bits_per_second, delay):
        self._bits_per_second, self._delay = bits_per_second, delay
        self.all_seconds = 0.0

    def all_gather(self, values):
        return self._delay + self._seconds(4 * int(values.shape[0]))

    def all_reduce_sum(self, values):
        return 2 * self._delay + self._seconds(4 * int(values.shape[0]))

    def _seconds(self, payload):
        headers = 150
        return 8 * (headers + payload) / self._bits_per_second

    def measure(self, collective, expected):
        """Instead of `links._seconds`, whose repeats are those of the real function."""
        seconds = collective()
        repeats = links._REPEATS if expected < links._REPEATED_SECONDS else 1
        self.all_seconds += repeats * seconds
        return seconds


class MeasuredLinksTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(
        bits_per_second=(1e3, 3e4, 1e5, 1e6, 1e7, 1e8, 1e9), delay=(0.0, 0.01, 0.1, 0.3)
    )
    def test_rate_and_time(self, bits_per_second, delay):
        processes = _Processes(bits_per_second, delay)
        with (
            mock.patch.object(links, "slowest", return_value=lambda seconds: seconds),
            mock.patch.object(links, "_seconds", processes.measure),
        ):
            link = links.measure(processes)
        self.assertAllClose(8 / link.seconds_per_byte, bits_per_second, rtol=0.01)
        self.assertLess(processes.all_seconds, 60)
        if delay <= 0.01 and bits_per_second >= 1e5:
            self.assertLess(processes.all_seconds, 4)

    def test_rates_are_told_in_fitting_units(self):
        rates = 912.0, 86e3, 1e5, 7.31e6, 2e9
        self.assertEqual(
            [str(links.Link(8 / rate, 0.0)) for rate in rates],
            ["0.912 kbit/s", "86 kbit/s", "0.1 Mbit/s", "7.31 Mbit/s", "2.0 Gbit/s"],
        )


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
