#!/usr/bin/env bash
# Builds every Bazel target, runs one program's --help and the small tests of ternary/.
# Bazel 4 to 6 take Python packages from the virtual environment of scripts/venv.sh.
#   bash scripts/bazel.sh                      # all of the above
#   bash scripts/bazel.sh test //tests/...     # any other Bazel command
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"
cd "$ROOT"

if ! command -v bazel >/dev/null; then
  root=()
  if [[ "$(id -u)" != 0 ]]; then
    root=(sudo -n)
  fi
  if command -v apt-get >/dev/null && { [[ "$(id -u)" == 0 ]] || sudo -n true 2>/dev/null; }; then
    echo "== no bazel found: installing the distribution's package bazel-bootstrap"
    "${root[@]}" apt-get update -qq
    DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -y -qq bazel-bootstrap >/dev/null
  else
    echo "bazel.sh: no bazel found, and installing it needs root and apt-get;" \
      "install Bazel 4 or newer (Debian and Ubuntu: apt-get install bazel-bootstrap)" >&2
    exit 1
  fi
fi

export PYTHON3="$PYTHON" TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-2}"
if (($#)); then
  exec bazel "$@"
fi
echo "== bazel build //..."
bazel build //...
echo "== bazel run //terngrad_tf:mnist_train -- --help"
# absl programs end with status 1 after --help; what they print tells whether they ran.
help="$(bazel run //terngrad_tf:mnist_train -- --help 2>&1)" || true
if ! grep -q -- '--grad_bits' <<<"$help"; then
  echo "$help" >&2
  echo "bazel.sh: the help of //terngrad_tf:mnist_train names no --grad_bits" >&2
  exit 1
fi
grep -- '^ *--' <<<"$help" | head -n 40
echo "== bazel test //tests:build_files_test //tests/ternary/..."
exec bazel test //tests:build_files_test //tests/ternary/...
