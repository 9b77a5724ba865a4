#!/usr/bin/env bash
# Builds the programs with Bazel, for example bazel-bin/inception/mnist_train.
#   bash scripts/build_all.sh
set -euo pipefail
exec bash "$(dirname "${BASH_SOURCE[0]}")/bazel.sh" build //inception:all //terngrad_tf/bin:all //slim_data:all
