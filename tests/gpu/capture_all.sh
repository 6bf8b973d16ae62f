#!/usr/bin/env bash
# Records, on a GPU machine and with nsys itself, every trace and timing that tests and published figures rest on.
# Usage, from the repository root: OUT=FOLDER tests/gpu/capture_all.sh DEBS_FOLDER WHEELS_FOLDER
#   DEBS_FOLDER   packages for setup_nsys.sh; WHEELS_FOLDER the wheel of nvtx for the machine's Python.
# OUT receives log.txt, help.txt, events.jsonl, cuda_gpu_kern_sum.csv, and the packed exports in pieces
# (cat traces.tar.xz.* | tar xJ; gz where the machine has no xz). Every step has a time limit; one that fails is
# logged and the rest goes on.
set -uo pipefail

debs=${1:?usage: capture_all.sh DEBS_FOLDER WHEELS_FOLDER} wheels=${2:?usage: capture_all.sh DEBS_FOLDER WHEELS_FOLDER}
: "${OUT:?set OUT to the folder for the results}"
budget_s=${BUDGET_S:-420} # no new step starts after this
here=tests/gpu
work=$(mktemp -d)
mkdir -p "$OUT" "$work/traces" "$work/site"
exec > >(tee "$OUT/log.txt") 2>&1
export PYTHONPATH=$work/site:$PWD PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1

step() { # step SECONDS NAME COMMAND…: run within a time limit, log result and duration
    local limit=$1 name=$2 began=$SECONDS rc
    shift 2
    ((SECONDS < budget_s)) || { echo "[$name] left out: $SECONDS s are spent"; return; }
    echo "[$name] \$ $*"
    timeout --signal=INT --kill-after=10 "$limit" "$@"
    rc=$?
    echo "[$name] rc $rc after $((SECONDS - began)) s, at $SECONDS s"
    return $rc
}

nsys=$(bash $here/setup_nsys.sh "$debs") || echo "setup_nsys failed"
python3 -m pip install -q --no-index --no-deps --no-compile --target "$work/site" "$wheels"/*.whl
"$nsys" --version
"$nsys" profile --help >"$OUT/help.txt" 2>&1
ldd "$(dirname "$nsys")/../host-linux-x64/QdstrmImporter" | grep not && echo "the importer lacks libraries"
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv
python3 -c 'import sys, torch, triton, transformers, nvtx; print(sys.version, torch.__version__, triton.__version__, transformers.__version__)'

has() { grep -q -- "--$1" "$OUT/help.txt"; }
flags=(--trace=cuda,nvtx --sample=none --cpuctxsw=none --cuda-graph-trace=node --wait=primary -f true)
has cuda-event-trace && flags+=(--cuda-event-trace=false)
range=(--capture-range=cudaProfilerApi --capture-range-end=stop --kill=none)

record() { # record SECONDS NAME NSYS_OPTION… -- COMMAND…: capture and export
    local limit=$1 name=$2
    shift 2
    step "$limit" "$name" "$nsys" profile "${flags[@]}" -o "$work/traces/$name" "$@"
    [[ -f $work/traces/$name.nsys-rep ]] || { echo "[$name] no report"; return; }
    step 60 "$name export" "$nsys" export -t sqlite -f true -o "$work/traces/$name.sqlite" "$work/traces/$name.nsys-rep" >"$work/export.log"
    tail -2 "$work/export.log"
}

llama=(python3 -m tracelab.kernels.llama8b)
steps=(--steps 8)

record 90 llama8b_eager_b1 "${range[@]}" -- "${llama[@]}" "${steps[@]}"
record 90 llama8b_graph_b1 "${range[@]}" -- "${llama[@]}" "${steps[@]}" --graph
record 60 failed_launch "${range[@]}" -- python3 $here/failed_launch.py
for case in "--batch 1" "--batch 1 --graph" "--batch 64" "--batch 64 --graph"; do
    # shellcheck disable=SC2086 # the case is several words
    step 60 "events $case" "${llama[@]}" "${steps[@]}" $case --events | tee -a "$OUT/events.log"
done
grep '^{' "$OUT/events.log" >"$OUT/events.jsonl" && rm "$OUT/events.log"
record 90 hf_eager --kill=none -- python3 $here/hf_loop.py
record 90 hf_graph --kill=none -- python3 $here/hf_loop.py --graph
record 90 llama8b_eager_b64 "${range[@]}" -- "${llama[@]}" "${steps[@]}" --batch 64
record 90 llama8b_graph_b64 "${range[@]}" -- "${llama[@]}" "${steps[@]}" --batch 64 --graph

fork=()
has trace-fork-before-exec && fork=(--trace-fork-before-exec=true)
# A server that does not end by itself: with --kill=sigterm nsys ends it after the window; with --kill=none it must be
# stopped from outside, and what counts is whether the report is written then. A third ends by itself.
record 45 server_eager --delay=15 --duration=2 --kill=sigterm -- python3 $here/server.py
record 45 server_graph_fork "${fork[@]}" --delay=15 --duration=2 --kill=sigterm -- python3 $here/server.py --graph
record 35 server_graph_kill_none --delay=15 --duration=2 --kill=none -- python3 $here/server.py --graph
record 60 server_graph_exits --kill=none -- python3 $here/server.py --graph --requests 6 --exit

timeout 60 "$nsys" stats --report cuda_gpu_kern_sum --format csv "$work/traces/llama8b_eager_b1.sqlite" >"$OUT/cuda_gpu_kern_sum.csv" 2>"$work/stats.log"
tail -5 "$work/stats.log"
pgrep -af 'server\.py|nsys' | head -5 # what was left running: a fact about --kill, not an error
ls -l "$work/traces"

piece=15m # the results come back in files of at most 16 MiB
pack=(gzip -9) suffix=gz
command -v xz >/dev/null && pack=(xz -T0 -6) suffix=xz
(cd "$work/traces" && tar -cf - -- *.sqlite) | "${pack[@]}" | split -b $piece - "$OUT/traces.tar.$suffix."
rep=$work/traces/llama8b_graph_b1.nsys-rep # one report, to test reading reports
[[ -f $rep ]] && (($(stat -c %s "$rep") < 15000000)) && cp "$rep" "$OUT/"
ls -l "$OUT"
echo "done at $SECONDS s"
