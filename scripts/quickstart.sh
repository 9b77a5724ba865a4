#!/usr/bin/env bash
# Trains LeNet on handwritten digits with ternary and with float gradients, then in a subspace, and
# compares them:
#   bash scripts/quickstart.sh [--output_dir DIR] [flags of terngrad_tf.bin.quickstart]
# Results go to ./quickstart_output; run it again to continue from there.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"
echo "== quickstart: LeNet on scikit-learn's digits, 4 replicas, ternary against float gradients, subspace"
exec "$PYTHON" -m terngrad_tf.bin.quickstart "$@"
