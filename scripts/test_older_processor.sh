#!/usr/bin/env bash
# Runs the numeric tests as on the oldest processors that TensorFlow's packages support: their instruction
# sets add in another order, round once less, and convert half precision differently. Arguments go to
# test.sh.
#   bash scripts/test_older_processor.sh
#   bash scripts/test_older_processor.sh tests/models -k lenet
set -euo pipefail
export ONEDNN_MAX_CPU_ISA=SSE41 TF_ENABLE_ONEDNN_OPTS=0 OPENBLAS_CORETYPE=Nehalem
export XLA_FLAGS="${XLA_FLAGS:-} --xla_cpu_max_isa=AVX"
# Feature names of NumPy since 2.4, and before.
export NPY_DISABLE_CPU_FEATURES="X86_V3 X86_V4 AVX512_ICL AVX512_SPR \
FMA3 AVX2 AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL"
if (($# == 0)); then
  set -- -m "not slow and not long" tests/models tests/ternary tests/subspace
fi
exec bash "$(dirname "${BASH_SOURCE[0]}")/test.sh" "$@"
