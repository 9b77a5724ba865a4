"""Checks which ops of the codec would run on a GPU, by TensorFlow's list of kernels."""

import functools
import sys
import unittest

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.python.framework import kernels

from terngrad_tf import ternary

# Tensors with fewer elements may pass through host memory.
SMALL = 1000
SHAPES = ([2**20 + 3], [300, 300], [1500], [2**20 + 3], [3, 3, 64, 80], [10])
# Function calls: their bodies are checked, or XLA compiles them for the device.
CALLS = ("PartitionedCall", "StatefulPartitionedCall")


@functools.cache
def gpu_kernels(op_type):
    """Returns pairs of a GPU kernel's types, by attribute, and its arguments in host memory."""
    found = []
    for kernel in kernels.get_registered_kernels_for_op(op_type).kernel:
        if kernel.device_type in ("GPU", "DEFAULT"):
            types = {c.name: set(c.allowed_values.list.type) for c in kernel.constraint}
            found.append((types, set(kernel.host_memory_arg)))
    return found


def argument_names(op, arguments, tensors):
    """Returns pairs of an argument name in the op's definition and a tensor."""
    names = []
    for argument in arguments:
        count = 1
        if argument.number_attr:
            count = op.get_attr(argument.number_attr)
        elif argument.type_list_attr:
            count = len(op.get_attr(argument.type_list_attr))
        names += [argument.name] * count
    assert len(names) == len(tensors)
    return zip(names, tensors, strict=True)


def through_the_host(graph):
    """Describes all large tensors of a graph that would be in host memory."""
    found, constant = [], set()
    for op in graph.get_operations():
        if op.type in CALLS:
            function = graph._functions[op.get_attr("f").name]
            if not function.definition.attr["_XlaMustCompile"].b:
                found += through_the_host(function.graph)
            continue
        # TensorFlow removes these or computes them once.
        if op.type == "Const" or (op.inputs and all(t.op in constant for t in op.inputs)):
            constant.add(op)
            continue
        if op.type in ("Placeholder", "NoOp", "Identity"):
            continue
        definition = op.op_def
        tensors = [
            *argument_names(op, definition.input_arg, op.inputs),
            *argument_names(op, definition.output_arg, op.outputs),
        ]
        large = [(n, t) for n, t in tensors if (t.shape.num_elements() or 0) >= SMALL]
        if not large:
            continue
        fitting = [
            host
            for types, host in gpu_kernels(op.type)
            if all(op.get_attr(name).as_datatype_enum in kinds for name, kinds in types.items())
        ]
        on_host = [n for n, _ in large] if not fitting else [n for n, _ in large if n in fitting[0]]
        if on_host:
            kinds = sorted({types_pb2.DataType.Name(t.dtype.as_datatype_enum) for _, t in large})
            found.append(f"{op.type} of {', '.join(kinds)}: {', '.join(sorted(set(on_host)))}")
    return found


@unittest.skipUnless(
    any(k.device_type == "GPU" for k in kernels.get_registered_kernels_for_op("AddN").kernel),
    "this TensorFlow has no kernels for GPUs",
)
class GpuKernelsTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.options = dict(seed=0, step=tf.constant(1, tf.int64), num_replicas=4)
        self.specs = [tf.TensorSpec(shape, tf.float32) for shape in SHAPES]
        self.scales = tf.TensorSpec([len(SHAPES)], tf.float32)

    def assert_on_device(self, function, *specs):
        graph = tf.function(function, autograph=False).get_concrete_function(*specs).graph
        self.assertEqual(sorted(set(through_the_host(graph))), [])

    def test_the_check_finds_tensors_in_host_memory(self):
        words = tf.TensorSpec([SMALL], tf.int32)
        function = tf.function(lambda x: tf.concat([x, x], 0)).get_concrete_function(words)
        self.assertEqual(through_the_host(function.graph), ["ConcatV2 of DT_INT32: output, values"])

    def test_encoding(self):
        def encode(scales, *gradients):
            return ternary.encode(list(gradients), scales, replica=tf.constant(1), **self.options)

        self.assert_on_device(encode, self.scales, *self.specs)

    def test_decoding(self):
        sizes = [int(np.prod(shape)) for shape in SHAPES]
        words = tf.TensorSpec([2, sum(ternary.num_words(size, 3) for size in sizes)], tf.int32)
        kinds = [tf.float32] * len(SHAPES)
        self.assert_on_device(
            lambda words, scales: ternary.decode(words, scales, SHAPES, kinds, total_bias=2),
            *(words, self.scales),
        )

    def test_sums_of_codes(self):
        def sums(scales, *gradients):
            replicas = [list(gradients), list(gradients)]
            return ternary.sum_codes(replicas, scales, replicas=[0, 1], **self.options)

        self.assert_on_device(sums, self.scales, *self.specs)

    def test_scales(self):
        self.assert_on_device(lambda *g: ternary.local_scales(list(g), 2.5), *self.specs)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
