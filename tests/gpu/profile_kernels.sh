#!/usr/bin/env bash
# Profiles the bundled kernels and decode steps in their good and starved forms on a GPU machine, and packs the pages,
# analyses and scrubbed traces. Usage, from the repository root:
#   OUT=FOLDER tests/gpu/profile_kernels.sh DEBS_FOLDER WHEELS_FOLDER [NAME_REGEX]
set -uo pipefail

debs=${1:?usage: profile_kernels.sh DEBS_FOLDER WHEELS_FOLDER [NAME_REGEX]} wheels=${2:?} wanted=${3:-.}
: "${OUT:?set OUT to the folder for the results}"
budget_s=${BUDGET_S:-470} # no new capture starts after this
work=$(mktemp -d)
mkdir -p "$OUT" "$work/site"
export PYTHONPATH=$work/site:$PWD PYTHONUNBUFFERED=1
python3 -m pip install -q --no-index --no-deps --no-compile --target "$work/site" "$wheels"/*.whl
bash tests/gpu/setup_nsys.sh "$debs" || echo "setup_nsys failed"

# name | arguments of `tracelab profile`
cases='
attention_flash      | attention --steps 4
attention_naive      | attention --variant naive --steps 4
attention_serial     | attention --variant flash_serial --steps 4
split_kv_split       | split-kv --steps 6 --graph
split_kv_serial      | split-kv --variant serial --steps 6 --graph
mla_split            | mla --steps 6 --graph
mla_unsplit          | mla --variant batched_unsplit --steps 4 --graph
mla_perhead_serial   | mla --variant per_head_serial --steps 3 --graph
mla_perhead_split    | mla --variant per_head_split --steps 3 --graph
mla_bh32_maxnreg     | mla --variant bh32_maxnreg --steps 6 --graph
mla_sweep            | --capture-range -- python3 tests/gpu/mla_sweep.py
mla_split_12         | mla --heads 12 --steps 6 --graph
grouped_masked       | grouped-gemm --steps 4 --graph
grouped_loop         | grouped-gemm --variant loop --steps 4
kda_fused            | kda --steps 6 --graph
kda_warps8           | kda --variant warps8 --steps 6 --graph
kda_12_heads         | kda --batch 1 --heads 12 --variant bv128 --steps 6 --graph
kda_12_heads_bv8     | kda --batch 1 --heads 12 --steps 6 --graph
kda_unfused          | kda --batch 1 --variant unfused --steps 4
kda_unfused_graph    | kda --batch 1 --variant unfused --steps 4 --graph
guard                | guard
llama8b_eager_b1     | llama8b
llama8b_graph_b1     | llama8b --graph
llama8b_eager_b64    | llama8b --batch 64
llama8b_graph_b64    | llama8b --batch 64 --graph
llama8b_graph_32k    | llama8b --ctx 32768 --layers 8 --steps 6 --graph
llama8b_serial_32k   | llama8b --ctx 32768 --layers 8 --steps 6 --graph --starve gqa=serial
llama8b_fail         | llama8b --layers 8 --steps 6 --fail attn_gqa@5
kimi_eager           | kimi-linear-mini --steps 6
kimi_graph           | kimi-linear-mini --steps 6 --graph
kimi_moe_loop        | kimi-linear-mini --layers 4 --steps 4 --starve moe=loop
kimi_mla_unsplit     | kimi-linear-mini --ctx 32768 --steps 4 --graph --starve mla=unsplit
server_eager         | --delay 15 --duration 2 -- python3 tests/gpu/server.py
server_graph         | --delay 15 --duration 2 -- python3 tests/gpu/server.py --graph
k3_graph_96          | k3-rank --steps 6 --graph
k3_graph_12          | k3-rank --heads 12 --steps 6 --graph
'
while IFS='|' read -r name arguments; do
    name=${name// /}
    [[ -n $name && $name =~ $wanted ]] || continue
    ((SECONDS < budget_s)) || { echo "[$name] left out: $SECONDS s are spent"; continue; }
    began=$SECONDS
    # shellcheck disable=SC2086 # the arguments are several words
    timeout --signal=INT --kill-after=10 100 python3 -m tracelab profile -o "$work/runs/$name" $arguments >"$work/$name.out" 2>"$work/$name.err" </dev/null
    echo "[$name] rc $? after $((SECONDS - began)) s, at $SECONDS s:$arguments"
    grep -v '^$' "$work/$name.err" | head -5
    rm -rf "$work/runs/$name/private"
    for kind in out err; do [ -d "$work/runs/$name" ] && cp "$work/$name.$kind" "$work/runs/$name/"; done
done <<<"$cases"
# The same steps without nsys, by CUDA events.
for arguments in "llama8b" "llama8b --graph" "llama8b --batch 64" "llama8b --batch 64 --graph" "kimi_linear_mini" \
    "kimi_linear_mini --graph" "k3_rank --graph" "k3_rank --heads 12 --graph"; do
    [[ "events $arguments" =~ $wanted ]] && ((SECONDS < budget_s + 60)) || continue
    # shellcheck disable=SC2086
    timeout 60 python3 -m tracelab.kernels.$arguments --events 2>&1 | tail -1 | tee -a "$OUT/events.log"
done
(cd "$work/runs" && tar -cf - -- */) | xz -T0 -6 | split -b 15m - "$OUT/runs.tar.xz."
ls -l "$OUT"
