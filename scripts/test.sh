#!/usr/bin/env bash
# Runs the tests: all except slow and long ones, only these, or a selection by pytest arguments.
#   bash scripts/test.sh
#   bash scripts/test.sh --slow
#   bash scripts/test.sh --long
#   bash scripts/test.sh tests                     # all
#   bash scripts/test.sh tests/ternary -k codec
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"
cd "$ROOT"
export TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-2}"
if (($# == 0)); then
  set -- -m "not slow and not long"
elif [[ "$1" == --slow || "$1" == --long ]]; then
  set -- -m "${1#--}" "${@:2}"
fi
# Files are spread over processes that need a few GB each: one more than there are cores, since many wait for
# programs that they started. The slowest tests are listed, since they may have to be marked slow.
processes="$(($(getconf _NPROCESSORS_ONLN) + 1))"
exec "$PYTHON" -m pytest --numprocesses="$((processes < 4 ? processes : 4))" --dist=loadfile --durations=10 "$@"
