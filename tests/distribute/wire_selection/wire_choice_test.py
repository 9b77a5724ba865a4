"""Tests of the wire that `wire="auto"` takes; `cluster_test.py` lets processes choose."""

import dataclasses
import sys
import types
from unittest import mock

import pytest
import tensorflow as tf
from absl.testing import parameterized

from terngrad_tf.distribute import Quantization
from terngrad_tf.distribute.exchange import wires
from terngrad_tf.distribute.exchange.buckets import ReductionContext
from terngrad_tf.distribute.exchange.plan import Job
from terngrad_tf.distribute.exchange.wires import registry
from terngrad_tf.distribute.exchange.wires.allgather import AllGather
from terngrad_tf.distribute.exchange.wires.sparse_bidirectional import SparseBidirectional
from terngrad_tf.distribute.telemetry.measurements import StepTelemetry
from terngrad_tf.distribute.wire_selection import advice, wire_choice
from terngrad_tf.distribute.wire_selection.exchange_model import ExchangeModel
from terngrad_tf.distribute.wire_selection.links import Link
from terngrad_tf.distribute.wire_selection.wire_choice import MIN_ELEMENTS, WireChoice

FAST, SLOW = Link(8 / 9.4e9, 1e-4), Link(8 / 1e6, 1e-3)
UNIT_SECONDS = 1e-9
LARGE = Job(2, 1, ((2_000_000,), (100, 70)), ())


class FewWords(AllGather):
    """A wire that receives a quarter of the words."""

    name = "few_words"

    @property
    def received_words(self):
        return super().received_words / 4


class OtherStreams(SparseBidirectional):
    """A lossy wire of streams."""

    name = "other_streams"


class Processes:
    """Identifies the processes; `cluster_test.py` tests their messages."""

    def __init__(self, rank, size):
        self.rank, self.size = rank, size


def context_of(num_processes, rank=0, device="CPU:0"):
    """A context with one replica per process."""
    return ReductionContext([device], num_processes, Processes(rank, num_processes))


def choice(wire, clip_factor, **options):
    """A new `WireChoice` for gradients clipped at `clip_factor` standard deviations."""
    return WireChoice(wire, Quantization(rotate=False, clip_factor=clip_factor, **options))


def taken(wire_choice, context, job=LARGE):
    """The wire taken before any trial."""
    wire = wire_choice.wire(context, job)
    return wire if isinstance(wire, str) else wire.taken


def measured(link):
    """Patches the measurements of links and processors."""
    return mock.patch.object(wire_choice, "_measure", return_value=(link, UNIT_SECONDS))


class WireChoiceTest(parameterized.TestCase, tf.test.TestCase):
    def test_slow_links_take_streams_and_fast_ones_the_usual_wire(self):
        for link, wire in ((SLOW, "sparse"), (FAST, "auto")):
            with measured(link):
                self.assertEqual(taken(choice("auto", 2.5), context_of(2)), wire)

    def test_without_clipping_streams_are_taken_on_faster_links(self):
        with measured(Link(8 / 50e6, 1e-3)):
            self.assertEqual(taken(choice("auto", 2.5), context_of(2)), "auto")
            self.assertEqual(taken(choice("auto", 0.0), context_of(2)), "sparse")

    def test_wires_that_may_win_are_tried(self):
        for megabits, tried in ((1, ["auto", "sparse"]), (50, ["auto", "sparse"]), (9400, None)):
            with self.subTest(megabits), measured(Link(8 / (1e6 * megabits), 1e-4)):
                wire = choice("auto", 2.5).wire(context_of(2), LARGE)
                if tried:
                    self.assertSequenceEqual(wire.wires, tried)
                else:
                    self.assertEqual(wire, "auto")

    def test_a_budget_of_bits_takes_streams_whatever_the_links(self):
        with measured(FAST) as measure:
            wire = choice("auto", 2.5, bits_per_element=0.3).wire(context_of(2), LARGE)
        self.assertEqual(wire, "sparse")
        measure.assert_not_called()

    def test_codes_of_rotated_gradients_take_words_on_all_links(self):
        rotated = dataclasses.replace(LARGE, rotated=True)
        for megabits in (1, 50, 9400):
            with self.subTest(megabits), measured(Link(8 / (1e6 * megabits), 1e-4)):
                wire = WireChoice("auto", Quantization()).wire(context_of(2), rotated)
                self.assertEqual(wire, "auto")

    def test_all_processes_take_the_same_whatever_their_models_order(self):
        jobs = [LARGE, Job(2, 1, ((400_000,),), (9,)), Job(2, 1, ((70_000, 5),), ())]
        with measured(Link(8 / 20e6, 1e-3)):
            first, second = (choice("auto", 2.5) for _ in range(2))
            of_first = [taken(first, context_of(2, rank=0), job) for job in jobs]
            of_second = [taken(second, context_of(2, rank=1), job) for job in reversed(jobs)]
        self.assertEqual(of_first, of_second[::-1])

    def test_a_retraced_step_measures_and_logs_nothing(self):
        chosen = choice("auto", 2.5)
        with measured(SLOW) as measure, self.assertLogs(wire_choice.__name__, "INFO") as logs:
            wires = [chosen.wire(context_of(2), job) for job in (LARGE, LARGE, LARGE)]
        self.assertEqual(wires[0].taken, "sparse")
        self.assertEqual([wire is wires[0] for wire in wires], [True] * 3)
        measure.assert_called_once()
        self.assertLen(logs.records, 1)

    def test_each_model_takes_its_own_wire_and_gives_the_reason(self):
        chosen = choice("auto", 2.5)
        small, large = Job(2, 1, ((MIN_ELEMENTS,),), ()), Job(2, 1, ((4_000_000,),), ())
        with measured(Link(8 / 10e6, 0.03)):
            wires = [taken(chosen, context_of(2), job) for job in (small, large)]
        self.assertEqual(wires, ["auto", "sparse"])
        first, second = chosen.reasons
        self.assertStartsWith(
            first, 'wire="auto" takes allgather for 65,536 gradients on links of 10 Mbit/s: '
        )
        self.assertStartsWith(second, 'wire="auto" takes sparse for 4,000,000 gradients on')

    def test_streams_pay_even_for_the_densest_measured_codes(self):
        for clip_factor, share in ((2.5, 0.2), (5.0, 0.1), (0.0, 0.07)):
            for bits_per_second in (10e6, 30e6, 100e6, 300e6, 1e9):
                link = Link(8 / bits_per_second, 1e-3)
                with measured(link):
                    wire = taken(choice("auto", clip_factor), context_of(2))
                if wire != "auto":
                    model = ExchangeModel(LARGE, link, share)
                    usual = model.seconds("allgather", UNIT_SECONDS)
                    self.assertLess(model.seconds(wire, UNIT_SECONDS), usual)

    @parameterized.named_parameters(
        ("a_named_wire", "alltoall", context_of(2), LARGE),
        ("one_process", "auto", ReductionContext(["CPU:0"] * 2, 2, None), LARGE),
        ("gpus", "auto", context_of(2, device="GPU:0"), LARGE),
        ("few_weights", "auto", context_of(2), Job(2, 1, ((MIN_ELEMENTS - 1,),), ())),
        ("float_gradients", "auto", context_of(2), Job(2, 1, (), (2_000_000,))),
    )
    def test_nothing_is_measured_with(self, wire, context, job):
        with measured(SLOW) as measure:
            self.assertEqual(choice(wire, 2.5).wire(context, job), wire)
        measure.assert_not_called()


class AnotherWireTest(parameterized.TestCase, tf.test.TestCase):
    """A wire that is only entered in the registry."""

    def setUp(self):
        super().setUp()
        for kind in (FewWords, OtherStreams):
            self.enter_context(mock.patch.dict(registry._CLASSES, {kind.name: (kind,)}))
        for module in (wires, registry):
            lossless = (*registry.LOSSLESS, FewWords.name)
            self.enter_context(mock.patch.object(module, "LOSSLESS", lossless))
            streams = (*registry.STREAMS, OtherStreams.name)
            self.enter_context(mock.patch.object(module, "STREAMS", streams))

    def test_auto_takes_it_if_it_is_quicker(self):
        chosen = choice("auto", 2.5)
        with measured(Link(8 / 10e6, 1e-3)):
            chosen.wire(context_of(2), LARGE)
        self.assertStartsWith(chosen.reasons[0], 'wire="auto" takes few_words for 2,000,170')

    def test_advice_includes_it(self):
        modes = (*advice.MODES, FewWords.name, OtherStreams.name)
        unknown = {field.name: None for field in dataclasses.fields(StepTelemetry)}
        seconds = {"step_seconds": 0.1, "rest_seconds": 0.05, "encode_seconds": 0.01}
        mean = StepTelemetry(**{**unknown, **seconds, "wire": "few_words"})
        strategy = types.SimpleNamespace(
            extended=types.SimpleNamespace(process_group=Processes(0, 2), takes_local_steps=False),
            telemetry=types.SimpleNamespace(mean=lambda: mean, job=LARGE),
        )
        with mock.patch.object(advice, "MODES", modes):
            result = advice.advise(strategy, bits_per_second=1e7)
        self.assertEqual(result.quickest, "few_words")
        self.assertEqual({*result.seconds}, {*modes})


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
