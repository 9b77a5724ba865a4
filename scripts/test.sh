#!/usr/bin/env bash
# Runs the tests: all of them, or those that pytest arguments select.
#   bash scripts/test.sh
#   bash scripts/test.sh tests/ternary -k codec
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"
cd "$ROOT"
export TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-2}"
exec "$PYTHON" -m pytest "$@"
