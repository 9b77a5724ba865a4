#!/usr/bin/env bash
# Tries the next releases of Keras and TensorFlow that pip offers, development builds and candidates too:
# some tests run with each in place of the release in .venv. Tells what comes of it, in 4 minutes at most,
# and never fails.
#   bash scripts/report_next_releases.sh
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 0
source scripts/venv.sh
export PYTHONPATH="$PWD"

# Each private name that is used, and the numbers of plain Keras.
TESTS=(tests/distribute/private/private_test.py tests/distribute/private/keras/scopes_test.py
  tests/distribute/private/keras/optimizers_test.py)
SECONDS=0
FOLDER="$(mktemp -d)"
trap 'rm -rf "$FOLDER"' EXIT

# The first release after the tested range, such as 3.16.0a0.
next() {
  "$PYTHON" -c 'import sys
from terngrad_tf.releases import TESTED
major, minor = TESTED[sys.argv[1]][1].split(".")
print(f"{major}.{int(minor) + 1}.0a0")' "$1"
}

# Arguments: name, second at which to end, then what pip may install, the first that it has.
try() {
  local name="$1" end="$2" requirement found status
  shift 2
  for requirement; do
    found="$FOLDER/$name"
    timeout "$((SECONDS < end ? end - SECONDS : 1))" "$PYTHON" -m pip install --quiet --pre --no-deps \
      --disable-pip-version-check --target "$found" "$requirement" >/dev/null 2>&1 && break
    found=""
  done
  if [[ -z "$found" ]]; then
    echo "== $name: pip offers none after the tested range, or not in time"
    return
  fi
  echo "== $name: $(cd "$found" && ls -d ./*.dist-info)"
  PYTHONPATH="$found:$PYTHONPATH" TF_CPP_MIN_LOG_LEVEL=2 timeout "$((SECONDS < end ? end - SECONDS : 1))" \
    "$PYTHON" -m pytest -q -m "not slow and not long" -p no:cacheprovider --no-header \
    --disable-warnings --numprocesses=2 --dist=loadfile "${TESTS[@]}" 2>&1 | tail -12
  status=${PIPESTATUS[0]}
  if ((status == 124)); then echo "== $name: not ended in time"; fi
  rm -rf "$found"
}

try keras 110 "keras>=$(next keras)" keras-nightly
try tensorflow 240 "tensorflow>=$(next tensorflow)"
exit 0
