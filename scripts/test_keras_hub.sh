# Runs the tests with networks of KerasHub, which no other test needs, in a separate virtual environment
# (.venv-keras_hub). Arguments go to test.sh.
#   bash scripts/test_keras_hub.sh
#   bash scripts/test_keras_hub.sh tests/clients/keras_hub_test.py -k adapters
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if (($# == 0)); then
  set -- tests/clients/keras_hub_test.py tests/docs/guides_test.py -k keras_hub
fi
export TERNGRAD_VENV="$PWD/.venv-keras_hub" TERNGRAD_REQUIRE="keras-hub==0.32.*"
exec bash scripts/test.sh "$@"
