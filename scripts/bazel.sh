#!/usr/bin/env bash
# Builds every Bazel target, and runs one program's --help and three small tests: pytest runs all of them.
# Bazel 4 to 6 use the Python packages of the virtual environment of scripts/venv.sh.
#   bash scripts/bazel.sh                      # all of the above
#   bash scripts/bazel.sh test //tests/...     # any other Bazel command
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"
source "$ROOT/scripts/packages.sh"
cd "$ROOT"

if ! command -v bazel >/dev/null && ! install_packages bazel-bootstrap; then
  echo "bazel.sh: no bazel found; install Bazel 4 or newer" \
    "(Debian and Ubuntu: apt-get install bazel-bootstrap)" >&2
  exit 1
fi

export PYTHON3="$PYTHON" TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-2}"
if (($#)); then
  exec bazel "$@"
fi
echo "== bazel build //..."
bazel build //...
# As in the documents, without PYTHON3: finds the virtual environment.
echo "== bazel build inception/mnist_train"
(unset PYTHON3 && bazel build inception/mnist_train)
for program in bazel-bin/inception/mnist_train "bazel run //terngrad_tf:mnist_train --"; do
  echo "== $program --help"
  if ! help="$($program --help 2>&1)" || ! grep -q -- '--grad_bits' <<<"$help"; then
    echo "$help" >&2
    echo "bazel.sh: $program --help failed, or names no --grad_bits" >&2
    exit 1
  fi
done
grep -- '^ *--' <<<"$help" | sed -n 1,40p
small_tests=(//tests:build_files_test //tests/ternary:codec_test //tests/ternary:quantizer_test)
echo "== bazel test ${small_tests[*]}"
exec bazel test "${small_tests[@]}"
