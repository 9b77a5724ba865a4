"""Loop of every worker of the benchmark of time to accuracy: trains and tests on request.

Each line of JSON has one line as answer:

    {"do": "begin", "mode", "optimizer", "rate", "seed", "num_steps"}    starts a training
    {"do": "steps", "mode", "count"}    takes steps: "seconds" and "received" bytes of all of them
    {"do": "test", "mode", "split"}     "right": correct answers on its share, "images": its size
"""

import json
import pathlib
import sys
import time

import numpy as np

from benchmarks.lib import step_server
from benchmarks.time_to_accuracy import workload


def serve(make, arguments):
    """Answers until the input ends.

    Args:
        make: function from a mode, initial weights, an optimizer's name, first learning rate and
            number of steps to a training: an object with `step(images, labels)`, `finish()`, which
            waits for the last step, and `logits(images)`; all values are arrays.
        arguments: this worker's index, number of workers, network interface, and folder with
            train_images.npy and so on.
    """
    index, count, interface = int(arguments[0]), int(arguments[1]), arguments[2]
    # All processes share the memory.
    files = pathlib.Path(arguments[3]).glob("*.npy")
    data = {file.stem: np.load(file, mmap_mode="r") for file in files}
    trainings, batches_of = {}, {}
    print(json.dumps({"ready": index}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        mode = asked["mode"]
        answer = {}
        if asked["do"] == "begin":
            weights = workload.initial_weights(asked["seed"])
            options = (asked[name] for name in ("optimizer", "rate", "num_steps"))
            trainings[mode] = make(mode, weights, *options)
            batches_of[mode] = workload.batches(
                len(data["train_images"]),
                asked["seed"],
                # Without an exchange, a worker takes all images.
                *((0, 1, count) if mode == workload.ALONE else (index, count)),
            )
        elif asked["do"] == "steps":
            answer = _take_steps(asked["count"], trainings[mode], batches_of[mode], data, interface)
        else:
            images, labels = (data[f"{asked['split']}_{name}"] for name in ("images", "labels"))
            share = slice(index * len(images) // count, (index + 1) * len(images) // count)
            answer = _test(trainings[mode], images[share], labels[share])
        print(json.dumps(answer), flush=True)


def _take_steps(count, training, batches, data, interface):
    before, start = step_server.received_bytes(interface), time.perf_counter()
    for _ in range(count):
        chosen = next(batches)
        training.step(data["train_images"][chosen], data["train_labels"][chosen])
    training.finish()
    seconds = time.perf_counter() - start
    # When all hosts pass, all data has arrived.
    time.sleep(0.05)
    return {"seconds": seconds, "received": step_server.received_bytes(interface) - before}


def _test(training, images, labels):
    pieces = range(0, len(images), 500)
    logits = np.concatenate([training.logits(images[i : i + 500].copy()) for i in pieces])
    return {"right": int(np.sum(np.argmax(logits, axis=-1) == labels)), "images": len(images)}
