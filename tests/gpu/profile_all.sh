#!/usr/bin/env bash
# Runs, on a GPU machine, every way of profiling that the README shows, and packs the run folders.
# Usage, from the repository root: OUT=FOLDER tests/gpu/profile_all.sh DEBS_FOLDER WHEELS_FOLDER
# The machine's only nsys sits inside Nsight Compute, so this also shows what tracelab says while its importer lacks
# libraries, and that it imports by hand where only the link to the importer is missing.
set -uo pipefail

debs=${1:?usage: profile_all.sh DEBS_FOLDER WHEELS_FOLDER} wheels=${2:?usage: profile_all.sh DEBS_FOLDER WHEELS_FOLDER}
: "${OUT:?set OUT to the folder for the results}"
budget_s=${BUDGET_S:-470} # no new step starts after this
here=tests/gpu
work=$(mktemp -d)
mkdir -p "$OUT" "$work/site"
exec > >(tee "$OUT/log.txt") 2>&1
export PYTHONPATH=$work/site:$PWD PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1

step() { # step SECONDS NAME COMMAND…: run within a time limit, log result and duration
    local limit=$1 name=$2 began=$SECONDS rc
    shift 2
    ((SECONDS < budget_s)) || { echo "[$name] left out: $SECONDS s are spent"; return; }
    echo "[$name] \$ $*"
    timeout --signal=INT --kill-after=20 "$limit" "$@"
    rc=$?
    echo "[$name] rc $rc after $((SECONDS - began)) s, at $SECONDS s"
    return $rc
}

tracelab=(python3 -m tracelab)
profile() { # profile SECONDS NAME ARGUMENT…
    local limit=$1 name=$2
    shift 2
    step "$limit" "$name" "${tracelab[@]}" profile -o "$work/$name" "$@"
}

python3 -m pip install -q --no-index --no-deps --no-compile --target "$work/site" "$wheels"/*.whl
step 30 "doctor, importer without libraries" "${tracelab[@]}" doctor
profile 30 no_importer llama8b
nsys=$(bash $here/setup_nsys.sh "$debs") || echo "setup_nsys failed"
link=$(dirname "$nsys")/../host-linux-x64
mv "$link" "$work/link" && profile 60 by_hand llama8b --layers 2 --steps 4
mv "$work/link" "$link"
step 30 doctor "${tracelab[@]}" doctor

for case in "eager_b1" "graph_b1 --graph" "eager_b64 --batch 64" "graph_b64 --batch 64 --graph"; do
    read -r name options <<<"$case"
    # shellcheck disable=SC2086 # the options are several words
    profile 90 "llama8b_$name" llama8b $options
    # shellcheck disable=SC2086
    step 60 "events $name" python3 -m tracelab.kernels.llama8b $options --events | tee -a "$OUT/events.log"
done
profile 60 failed_launch --capture-range -- python3 $here/failed_launch.py
profile 90 hf_eager -- python3 $here/hf_loop.py
profile 90 hf_graph -- python3 $here/hf_loop.py --graph
profile 60 server_eager --delay 15 --duration 2 -- python3 $here/server.py
profile 60 server_graph --delay 15 --duration 2 -- python3 $here/server.py --graph
profile 30 range_never_hit --capture-range -- python3 -c 'import torch; torch.ones(1, device="cuda").add(1)'
profile 30 dies_first -- python3 -c 'import os; os._exit(3)'
profile 30 no_kernels -- python3 -c 'print("no GPU work")'

echo "[ctrl_c] starting"
"${tracelab[@]}" profile -o "$work/ctrl_c" -- python3 $here/server.py --graph &
running=$!
sleep 22 && kill -INT $running && wait $running
echo "[ctrl_c] rc $? at $SECONDS s"
find "$work/ctrl_c" -type f | sed "s|$work/||"
pgrep -af 'server\.py|nsys' | head -5 # nothing should be left

stats=$(find "$work/llama8b_graph_b1/private" -name '*.sqlite' | head -1)
timeout 60 "$nsys" stats --report cuda_gpu_kern_sum --format csv "$stats" >"$OUT/cuda_gpu_kern_sum.csv" 2>"$work/stats.log"
report=$(find "$work/llama8b_graph_b1/private" -name '*.nsys-rep' | head -1)
step 60 "report of a .nsys-rep" "${tracelab[@]}" report "$report"

find "$work" -path '*/private/*.sqlite' -delete # the scrubbed exports come back
piece=15m
(cd "$work" && tar -cf - --exclude=site --exclude=link -- */) | xz -T0 -6 | split -b $piece - "$OUT/runs.tar.xz."
ls -l "$OUT"
echo "done at $SECONDS s"
