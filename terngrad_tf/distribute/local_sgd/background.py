"""Functions that run in a thread: started in one step, awaited in a later one."""

import threading
import weakref
from typing import Any

import tensorflow as tf

# More than the requests before the first results are taken.
_CAPACITY = 1024


class BackgroundFunctions:
    """Runs functions in a thread, in the order in which steps start them.

    `start` and `result` add operations to the step, so they work in `tf.cond`, in `tf.while_loop`
    and in eager code. Call `result` once after each `start`.

    Example:
    >>> background = BackgroundFunctions()
    >>> signature = [tf.TensorSpec([], tf.int64)]
    >>> square = tf.function(lambda n: [n * n], input_signature=signature)
    >>> background.add("square", square.get_concrete_function())
    >>> background.start("square", tf.constant(3, tf.int64))
    >>> int(background.result("square")[0])
    9
    """

    def __init__(self) -> None:
        self._functions: list[Any] = []
        self._results: dict[Any, tuple[int, Any]] = {}
        with tf.init_scope(), tf.device("CPU:0"):
            self._requests = tf.queue.FIFOQueue(_CAPACITY, [tf.int64, tf.int64], [[], []])
        arguments = weakref.ref(self), self._requests
        threading.Thread(target=_serve, args=arguments, daemon=True).start()
        # Also at the program's end, before TensorFlow is gone.
        weakref.finalize(self, _end, self._requests)

    def __contains__(self, key: Any) -> bool:
        return key in self._results

    def add(self, key: Any, function: Any) -> None:
        """Adds a concrete function from an int64 scalar to tensors of known shapes."""
        outputs = function.structured_outputs
        with tf.init_scope(), tf.device("CPU:0"):
            results = tf.queue.FIFOQueue(
                1,
                [tf.string, *(output.dtype for output in outputs)],
                [[], *(output.shape for output in outputs)],
            )
        self._results[key] = len(self._functions), results
        self._functions.append((function, results))

    def start(self, key: Any, argument: Any) -> None:
        """Starts the function with an int64 scalar tensor."""
        number, _ = self._results[key]
        with tf.device("CPU:0"):
            self._requests.enqueue([tf.constant(number, tf.int64), argument])

    def result(self, key: Any) -> list[Any]:
        """Waits for the function's tensors; its error is an InvalidArgumentError of the step."""
        _, results = self._results[key]
        with tf.device("CPU:0"):
            error, *values = results.dequeue()
            # For Keras, the error of a closed queue ends the data.
            check = tf.debugging.Assert(tf.equal(error, ""), [error])
            with tf.control_dependencies([] if check is None else [check]):
                return [tf.identity(value) for value in values]

    def run(self, number: int, argument: tf.Tensor) -> None:
        """Runs a function by its number, in the thread."""
        function, results = self._functions[number]
        try:
            values = [tf.constant(""), *function(argument)]
        except Exception as error:  # a step waits for it
            outputs = function.structured_outputs
            line = " ".join(str(error).split())
            values = [tf.constant(line), *(tf.zeros(o.shape, o.dtype) for o in outputs)]
        results.enqueue(values)


def _serve(reference, requests):
    while True:
        try:
            number, argument = requests.dequeue()
        except tf.errors.OpError:  # closed
            return
        functions = reference()
        if functions is None:
            return
        functions.run(int(number), argument)
        del functions


def _end(requests):
    # Garbage may be collected during a trace, with the graph locked.
    with tf.init_scope():
        requests.close(cancel_pending_enqueues=True)
