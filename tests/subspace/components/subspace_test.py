"""Tests of the principal components of snapshots, against scikit-learn."""

import os
import sys

import numpy as np
import pytest
import sklearn.decomposition
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from terngrad_tf.subspace import Subspace, save_snapshot
from terngrad_tf.subspace.components import pca
from terngrad_tf.subspace.weights import snapshot_files
from tests.subspace.samples import (
    assign_flat,
    build,
    flat,
    new_folder,
    trajectory,
    write_trajectory,
)


class PrincipalComponentsTest(tf.test.TestCase):
    @settings(max_examples=25, deadline=None, derandomize=True)
    @given(st.integers(2, 20), st.integers(2, 400), st.integers(0, 2**30), st.data())
    def test_components_mean_and_variances_are_those_of_scikit_learn(
        self, num_snapshots, length, seed, draw
    ):
        matrix = trajectory(num_snapshots, length, seed)
        k = draw.draw(st.integers(1, min(num_snapshots, length) - 1))
        expected = sklearn.decomposition.PCA(k, svd_solver="full").fit(matrix.astype(np.float64))
        components, mean, variance, ratio = self.components(matrix, k)
        outside = components - components @ expected.components_.T @ expected.components_
        self.assertLess(np.linalg.norm(outside, 2), 1e-3)  # the sine of the largest angle
        np.testing.assert_allclose(mean, expected.mean_, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(variance, expected.explained_variance_, rtol=1e-6)
        np.testing.assert_allclose(ratio, expected.explained_variance_ratio_, rtol=1e-6)
        self.assertLess(pca.orthonormality_error(components), 1e-5)
        # The sign makes the largest entry of each component positive.
        largest = components[np.arange(k), np.abs(components).argmax(1)]
        self.assertTrue((largest > 0).all())

    def test_single_components_are_those_of_scikit_learn_with_their_signs(self):
        matrix = trajectory(12, 3000)
        expected = sklearn.decomposition.PCA(5).fit(matrix.astype(np.float64)).components_
        np.testing.assert_allclose(self.components(matrix, 5)[0], expected, atol=1e-5)

    def test_pieces_give_the_same_as_one_read(self):
        matrix = trajectory(6, 1001)
        whole = self.components(matrix, 4)
        self.addCleanup(setattr, pca, "_PIECE_ELEMENTS", pca._PIECE_ELEMENTS)
        pca._PIECE_ELEMENTS = 6 * 100
        for a, b in zip(whole, self.components(matrix, 4), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)

    def components(self, matrix, k, dtype=np.float32):
        def read(start, piece):
            piece[:] = matrix[:, start : start + piece.shape[1]]

        return pca.principal_components(read, *matrix.shape, k, dtype)


class SubspaceTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = new_folder(self)
        self.model = build()
        self.matrix = trajectory(9, flat(self.model).size)
        write_trajectory(self.folder / "pca", self.model, self.matrix)

    def fit(self, k=4, **options):
        return Subspace.fit(self.folder / "pca", k, **options)

    def test_a_folder_or_a_list_of_files_gives_the_components(self):
        subspace = self.fit()
        expected = sklearn.decomposition.PCA(4).fit(self.matrix)
        np.testing.assert_allclose(subspace.components, expected.components_, atol=1e-4)
        np.testing.assert_allclose(subspace.mean, expected.mean_, atol=1e-5)
        files = snapshot_files.find_snapshots(self.folder / "pca")[2:]
        expected = sklearn.decomposition.PCA(4).fit(self.matrix[2:])
        subspace = Subspace.fit(files, 4)
        np.testing.assert_allclose(subspace.components, expected.components_, atol=1e-4)

    def test_files_keep_everything_in_each_dtype(self):
        for dtype in ("float32", "float16", "bfloat16"):
            with self.subTest(dtype=dtype):
                subspace = self.fit(dtype=dtype)
                self.assertEqual(subspace.components.dtype.name, dtype)
                subspace.save(self.folder / f"{dtype}.safetensors")
                loaded = Subspace.load(self.folder / f"{dtype}.safetensors")
                for name in (
                    "components",
                    "mean",
                    "explained_variance",
                    "explained_variance_ratio",
                ):
                    np.testing.assert_array_equal(getattr(loaded, name), getattr(subspace, name))
                self.assertEqual(loaded.layout, subspace.layout)
                self.assertEqual(loaded.fingerprint, subspace.fingerprint)
                self.assertEqual(loaded.path, str(self.folder / f"{dtype}.safetensors"))

    def test_npy_holds_the_matrix_alone(self):
        subspace = self.fit()
        subspace.save(self.folder / "pca.npy")
        matrix = np.load(self.folder / "pca.npy", allow_pickle=False)
        np.testing.assert_array_equal(matrix, subspace.components)
        np.save(self.folder / "double.npy", matrix.astype(np.float64))
        np.save(self.folder / "swapped.npy", matrix.astype(matrix.dtype.newbyteorder()))
        np.save(self.folder / "swapped_double.npy", matrix.astype(">f8"))
        for name in ("pca.npy", "double.npy", "swapped.npy", "swapped_double.npy"):
            with self.subTest(name=name):
                loaded = Subspace.load(self.folder / name)
                self.assertEqual(loaded.fingerprint, subspace.fingerprint)
                loaded.check_fits(self.model.trainable_variables)
                with self.assertRaisesRegex(ValueError, "must have the 43 trainable weights"):
                    loaded.check_fits(build(width=6).trainable_variables)
                with self.assertRaisesRegex(ValueError, "mean of the snapshots must be known"):
                    loaded.assign_mean(self.model)
        with self.assertRaisesRegex(ValueError, "must end in .safetensors for components in fl"):
            self.fit(dtype="float16").save(self.folder / "half.npy")

    def test_invalid_bases_are_refused_on_load(self):
        components = self.fit().components
        for matrix, message in (
            (components * 1.01, "orthonormal rows.*difference of 0.02"),
            (np.full_like(components, np.nan), "orthonormal rows.*difference of nan"),
            (components[0], "must be a matrix with fewer rows"),
            (components.T, "must be a matrix with fewer rows"),
            (components.astype(np.int32), "must be in one of float32"),
            (np.array([[None, 1, 2]]), "not a matrix in .npy format"),
        ):
            np.save(self.folder / "bad.npy", matrix, allow_pickle=True)
            with self.subTest(message=message), self.assertRaisesRegex(ValueError, message):
                Subspace.load(self.folder / "bad.npy")
        path = save_snapshot(self.model, self.folder, 3)
        with self.assertRaisesRegex(ValueError, "does not hold a subspace"):
            Subspace.load(path)
        with self.assertRaisesRegex(ValueError, "must end in .npy or .safetensors"):
            Subspace.load("basis.mat")
        with self.assertRaises(FileNotFoundError):
            Subspace.load(self.folder / "none.npy")

    def test_too_few_snapshots_are_counted(self):
        with self.assertRaisesRegex(
            ValueError, "=32 needs 33 snapshots or more. Received: 9 snapshots, 24 are missing"
        ):
            Subspace.fit(self.folder / "pca")
        self.fit(8)
        with self.assertRaisesRegex(ValueError, "=9 needs 10 .* 1 are missing"):
            self.fit(9)

    def test_snapshots_of_fewer_directions_are_refused(self):
        self.matrix[5:] = self.matrix[4]
        write_trajectory(self.folder / "pca", self.model, self.matrix)
        self.fit(4)
        with self.assertRaisesRegex(ValueError, "directions that the snapshots span, 4. Received"):
            self.fit(5)

    def test_snapshots_of_different_networks_or_not_finite_are_refused(self):
        save_snapshot(build(width=6), self.folder / "pca", 100)
        with self.assertRaisesRegex(ValueError, "snapshot-0000000100.* where .* is expected"):
            self.fit()
        self.matrix[3, 7] = np.inf
        write_trajectory(self.folder / "other", self.model, self.matrix)
        with self.assertRaisesRegex(ValueError, "must be finite"):
            Subspace.fit(self.folder / "other", 4)

    def test_arguments_out_of_range_are_refused(self):
        for options, message in (
            ({"k": 0}, "`num_components` must be a positive integer. Received: num_components=0"),
            ({"k": 2.0}, "`num_components` must be a positive integer"),
            ({"dtype": "int8"}, "`dtype` must be one of float32, float16, bfloat16"),
        ):
            with self.subTest(options=options), self.assertRaisesRegex(ValueError, message):
                self.fit(**options)
        with self.assertRaisesRegex(FileNotFoundError, "`snapshots` must be a folder"):
            Subspace.fit(os.path.join(self.folder, "none"), 4)

    def test_networks_fit_by_names_shapes_and_order(self):
        subspace = self.fit()
        subspace.check_fits(build(seed=5).trainable_variables)
        with self.assertRaisesRegex(ValueError, "the model must hold the names and shapes of"):
            subspace.check_fits(build(width=6).trainable_variables)
        with self.assertRaisesRegex(ValueError, "same order"):
            subspace.check_fits(self.model.trainable_variables[::-1])

    def test_coordinates_and_weights_invert_each_other(self):
        subspace = self.fit(8)
        for row in self.matrix[:3]:
            weights = self.weights_of(row)
            coordinates = subspace.transform(weights)
            self.assertEqual(coordinates.shape, (8,))
            # Eight directions represent nine snapshots exactly.
            for a, b in zip(subspace.inverse_transform(coordinates), weights, strict=True):
                np.testing.assert_allclose(a, b, atol=1e-4)
        np.testing.assert_allclose(
            subspace.explained_variance,
            np.var(
                [subspace.transform(self.weights_of(row)) for row in self.matrix], axis=0, ddof=1
            ),
            rtol=1e-4,
        )

    def weights_of(self, row):
        assign_flat(self.model, row)
        return [v.numpy() for v in self.model.trainable_variables]

    def test_coordinates_and_weights_of_other_shapes_are_refused(self):
        subspace = self.fit(4)
        weights = self.weights_of(self.matrix[0])
        for wrong in (weights[::-1], weights[:-1], [self.matrix[0]]):
            with self.assertRaisesRegex(ValueError, r"`weights` must have the shapes \[\(4, 5\),"):
                subspace.transform(wrong)
        for wrong, shape in ([0.0] * 5, r"\(5,\)"), (np.zeros([2, 2]), r"\(2, 2\)"):
            message = rf"`coordinates` must have a shape \[c\] with c <= 4.*coordinates={shape}"
            with self.assertRaisesRegex(ValueError, message):
                subspace.inverse_transform(wrong)

    def test_training_can_start_at_the_mean(self):
        self.fit().assign_mean(self.model)
        np.testing.assert_allclose(flat(self.model), self.matrix.mean(0, np.float64), atol=1e-5)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
