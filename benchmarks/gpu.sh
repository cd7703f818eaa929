#!/usr/bin/env bash
# What the asynchronous seam costs beside the synchronous one, on one GPU with 80 GB: tokens a second, waiting, memory.
#
#   benchmarks/gpu.sh                 both parts, each of at most ten minutes
#   benchmarks/gpu.sh Qwen2.5-1.5B    one part; the other is Qwen2.5-7B
#   benchmarks/gpu.sh --dry-run       the same commands with a tiny policy, without a GPU, in a minute
#
# Wants: pip install -e '.[benchmarks,vllm]'. Nothing is fetched.
# Writes benchmarks/results/gpu/SHAPE/both_seams.md and .json ($OUTPUT/SHAPE in place of it, where OUTPUT is set).
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python}
small=()
shapes=(Qwen2.5-1.5B Qwen2.5-7B)
if [ "${1:-}" = --dry-run ]; then
  shapes=(tiny)
  small=(--tasks 2 --group 2 --reply-tokens 8 --passes 2 --updates 2)
elif [ $# -gt 0 ]; then
  shapes=("$@")
fi
for shape in "${shapes[@]}"; do
  timeout --kill-after=30 600 "$python" benchmarks/both_seams.py --shape "$shape" ${small[@]+"${small[@]}"} \
    --output "${OUTPUT:-benchmarks/results/gpu}/$shape"
done
