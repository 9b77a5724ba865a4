"""The subspace spanned by a trajectory of weights: `Subspace`."""

import functools
import hashlib
import os
import pathlib
from collections.abc import Iterable, Sequence

import keras
import numpy as np
import tensorflow as tf

from terngrad_tf.common.arguments import check, check_integer, shown
from terngrad_tf.common.files import PathLike
from terngrad_tf.subspace.components import subspace_files
from terngrad_tf.subspace.components.pca import orthonormality_error, principal_components
from terngrad_tf.subspace.weights import snapshot_files, variables
from terngrad_tf.subspace.weights.variables import Layout

_TOLERANCES = {"float32": 1e-3, "float16": 1e-2, "bfloat16": 2e-2}
DTYPES = tuple(_TOLERANCES)


class Subspace:
    """An affine subspace of a network's weights: orthonormal directions and a point.

    The directions are the principal components P [k, n] of weight snapshots, largest variance
    first; n is the number of trainable weights, in the order of `trainable_variables`.

    Example:
        >>> subspace = Subspace.fit(snapshots, num_components=4)
        >>> subspace.save(os.path.join(directory, "subspace.safetensors"))
        >>> Subspace.load(os.path.join(directory, "subspace.safetensors")).num_components
        4

    Args:
        components: array [k, n], float32, float16 or bfloat16, with orthonormal rows.
        mean: float32 array [n], the mean of the snapshots. Default: unknown.
        explained_variance: float64 array [k]. Default: unknown.
        explained_variance_ratio: float64 array [k], fractions of the total. Default: unknown.
        layout: names and shapes of the weights, see `variables.layout_of`. Default: unknown.
        path: file of the subspace. Default: none.

    Raises:
        ValueError: the components are not orthonormal, or their length differs from the layout's.

    Source: Li et al., "Low Dimensional Trajectory Hypothesis is True: DNNs Can Be Trained in Tiny
    Subspaces", TPAMI 2022.
    """

    def __init__(
        self,
        components: np.ndarray,
        *,
        mean: np.ndarray | None = None,
        explained_variance: np.ndarray | None = None,
        explained_variance_ratio: np.ndarray | None = None,
        layout: Layout | None = None,
        path: PathLike | None = None,
    ) -> None:
        self.components = components
        self.mean = mean
        self.explained_variance = explained_variance
        self.explained_variance_ratio = explained_variance_ratio
        self.layout = layout
        self.path = None if path is None else os.path.abspath(path)
        self._check_arrays("`components`" if path is None else str(path))

    @classmethod
    def fit(
        cls,
        snapshots: PathLike | Iterable[PathLike],
        num_components: int = 32,
        *,
        dtype: str = "float32",
    ) -> "Subspace":
        """Computes the principal components of weight snapshots.

        Reads the files twice, in pieces, and computes in float64. Memory beyond the result (k + 1
        vectors) stays under 0.3 GB for networks of any size.

        Args:
            snapshots: folder of `SnapshotCheckpoint`, or list of its files.
            num_components: k, less than the number of snapshots. Default 32.
            dtype: "float32", "float16" or "bfloat16", dtype of the components. Default "float32".

        Returns:
            `Subspace`.

        Raises:
            ValueError: there are too few snapshots, their names or shapes differ, they span fewer
                than `num_components` directions, or they hold NaN or Inf.
            FileNotFoundError: the folder or a file does not exist.
        """
        check_integer("num_components", num_components)
        check(dtype in DTYPES, "dtype", f"must be one of {', '.join(DTYPES)}", dtype)
        opened = snapshot_files.open_snapshots(snapshots)
        missing = num_components + 1 - len(opened)
        if missing > 0:
            raise ValueError(
                f"`num_components`={num_components} needs {num_components + 1} snapshots or more. "
                f"Received: {len(opened)} snapshots, {missing} are missing"
            )
        first = opened[0]

        def read(start, piece):
            for snapshot, row in zip(opened, piece, strict=True):
                snapshot.read_range(start, row)

        components, mean, variance, ratio = principal_components(
            read,
            len(opened),
            variables.num_weights(first.layout),
            num_components,
            tf.as_dtype(dtype).as_numpy_dtype,
        )
        return cls(
            components,
            mean=mean,
            explained_variance=variance,
            explained_variance_ratio=ratio,
            layout=first.layout,
        )

    @classmethod
    def load(cls, path: PathLike) -> "Subspace":
        """Reads a subspace; its arrays are mapped from the file, not copied.

        Args:
            path: `.safetensors` file of `save`, or `.npy` file with only a matrix [k, n] (float64
                is cast to float32).

        Returns:
            `Subspace`. A `.npy` file has neither mean, variances nor names of the weights.

        Raises:
            ValueError: the file is damaged or of another kind, or its rows are not orthonormal.
            FileNotFoundError: the file does not exist.
        """
        return cls(**subspace_files.read_subspace(pathlib.Path(path)), path=path)

    def save(self, path: PathLike) -> None:
        """Writes the subspace atomically.

        Args:
            path: name that ends in `.safetensors`, for everything, or `.npy`, for the float32
                matrix [k, n] only.

        Raises:
            ValueError: the name ends otherwise, or components for `.npy` are not float32.
        """
        subspace_files.write_subspace(pathlib.Path(path), self)
        self.path = os.path.abspath(path)

    @property
    def num_components(self) -> int:
        """K, the dimension of the subspace."""
        return self.components.shape[0]

    @property
    def num_weights(self) -> int:
        """N, the number of weights of the network."""
        return self.components.shape[1]

    @functools.cached_property
    def fingerprint(self) -> int:
        """A 63-bit integer, a hash of the components."""
        digest = hashlib.sha256(str(self.components.dtype).encode())
        for row in self.components:
            digest.update(np.ascontiguousarray(row).view(np.uint8).data)
        return int.from_bytes(digest.digest()[:8], "big") >> 1

    def check_fits(self, trainable_variables: Sequence[keras.Variable]) -> None:
        """Refuses a network whose trainable weights do not match the subspace.

        Args:
            trainable_variables: list of `keras.Variable`.

        Raises:
            ValueError: names, shapes or order differ, or, if names are unknown, the number of
                weights.
        """
        layout = variables.layout_of(trainable_variables)
        source = "the subspace" if self.path is None else self.path
        if self.layout is not None:
            variables.check_same_layout(self.layout, layout, source, "the model")
        elif variables.num_weights(layout) != self.num_weights:
            raise ValueError(
                f"the model must have the {self.num_weights} trainable weights of {source}. "
                f"Received: {variables.num_weights(layout)}"
            )

    def transform(self, weights: Sequence[np.ndarray]) -> np.ndarray:
        """Projects a point to the subspace, relative to the mean.

        Args:
            weights: list of arrays of all trainable weights, as from `Snapshot.read`.

        Returns:
            float64 array [k].

        Raises:
            ValueError: the shapes or their order differ from the layout's, or the mean is unknown
                (a `.npy` file).
        """
        mean, layout = self._place()
        shapes, expected = [np.shape(w) for w in weights], [shape for _, shape in layout]
        rule = f"must have the shapes {shown(expected)}, in this order"
        check(shapes == expected, "weights", rule, shapes)
        vector = np.concatenate([np.ravel(w) for w in weights]).astype(np.float32) - mean
        return np.stack([np.dot(row.astype(np.float32), vector) for row in self.components]).astype(
            np.float64
        )

    def inverse_transform(self, coordinates: Sequence[float] | np.ndarray) -> list[np.ndarray]:
        """Returns the weights of a point in the subspace: `mean + P^T coordinates`.

        Args:
            coordinates: array [c] with c <= k; missing ones are zero, so that an empty array gives
                the mean.

        Returns:
            List of float32 arrays in the layout's shapes.

        Raises:
            ValueError: `coordinates` is not a vector of at most k numbers, or the mean is unknown
                (a `.npy` file).
        """
        mean, layout = self._place()
        received, k = np.shape(coordinates), self.num_components
        is_vector = len(received) == 1 and received[0] <= k
        check(is_vector, "coordinates", f"must have a shape [c] with c <= {k}", received)
        vector = np.array(mean)
        for row, coordinate in zip(self.components, coordinates, strict=False):
            vector += np.float32(coordinate) * row.astype(np.float32)
        sizes = [int(np.prod(shape)) for _, shape in layout]
        parts = np.split(vector, np.cumsum(sizes)[:-1])
        return [part.reshape(shape) for part, (_, shape) in zip(parts, layout, strict=True)]

    def assign_mean(self, model: keras.Model) -> None:
        """Sets a model's trainable weights to the mean of the snapshots, a good starting point.

        Batch-norm statistics still belong to the old weights: see `update_batch_norm`.

        Args:
            model: `keras.Model` that fits the subspace.

        Raises:
            ValueError: the model does not fit, or the mean is unknown (a `.npy` file).
        """
        mean = self.inverse_transform(())
        self.check_fits(model.trainable_variables)
        for variable, value in zip(model.trainable_variables, mean, strict=True):
            variable.assign(value)

    def _place(self) -> tuple[np.ndarray, Layout]:
        """Returns mean and layout; raises ValueError if unknown."""
        if self.mean is None or self.layout is None:
            raise ValueError(
                "the mean of the snapshots must be known: load the .safetensors file, or fit again."
                f" Received: a subspace from {self.path}"
            )
        return self.mean, self.layout

    def _check_arrays(self, source: str) -> None:
        """Raises ValueError if arrays and layout form no subspace."""
        components, layout = self.components, self.layout
        if components.ndim != 2 or not 0 < components.shape[0] < components.shape[1]:
            raise ValueError(
                f"{source} must be a matrix with fewer rows (components) than columns (weights). "
                f"Received: shape={components.shape}"
            )
        tolerance = _TOLERANCES.get(components.dtype.name)
        if tolerance is None:
            raise ValueError(
                f"{source} must be in one of {', '.join(DTYPES)}. Received: {components.dtype.name}"
            )
        if layout is not None and variables.num_weights(layout) != components.shape[1]:
            raise ValueError(
                f"{source} must have a column for each of the {variables.num_weights(layout)} "
                f"weights named. Received: {components.shape[1]} columns"
            )
        deviation = orthonormality_error(components)
        if not deviation <= tolerance:
            raise ValueError(
                f"{source} must have orthonormal rows: P P^T may differ from the identity by at "
                f"most {tolerance:g}. Received: a difference of {deviation:.3g}"
            )
        for name in ("mean", "explained_variance", "explained_variance_ratio"):
            array = getattr(self, name)
            if array is not None and not np.isfinite(array).all():
                raise ValueError(f"{source} must be finite. Received: {name} with NaN or Inf")
