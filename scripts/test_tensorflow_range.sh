#!/usr/bin/env bash
# Runs the tests at both ends of the TensorFlow and Keras ranges in pyproject.toml, each in a separate
# virtual environment (.venv-tf2.18 and .venv-tf2.21). Arguments go to pytest.
#   bash scripts/test_tensorflow_range.sh
#   bash scripts/test_tensorflow_range.sh tests/distribute
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

failed=()
# tensorflow-metadata, needed by tensorflow-datasets, requires a newer protobuf than TensorFlow 2.18 allows.
for pair in "2.18 3.12 <1.18" "2.21 3.15 >=1.18"; do
  read -r tensorflow keras metadata <<<"$pair"
  echo "== TensorFlow $tensorflow with Keras $keras"
  TERNGRAD_VENV="$PWD/.venv-tf$tensorflow" \
    TERNGRAD_REQUIRE="tensorflow==$tensorflow.* keras==$keras.* tensorflow-metadata$metadata" \
    bash scripts/test.sh "$@" || failed+=("TensorFlow $tensorflow with Keras $keras")
done
if ((${#failed[@]})); then
  printf 'FAILED: %s\n' "${failed[@]}" >&2
  exit 1
fi
echo "== both ends passed"
