#!/usr/bin/env bash
# Captures pairs of programs on a GPU machine, each twice in separate processes, and compares them with `tracelab diff`.
# Usage, from the repository root: OUT=FOLDER tests/gpu/diff_pairs.sh DEBS_FOLDER WHEELS_FOLDER
set -uo pipefail

debs=${1:?usage: diff_pairs.sh DEBS_FOLDER WHEELS_FOLDER} wheels=${2:?}
: "${OUT:?set OUT to the folder for the results}"
work=$(mktemp -d)
mkdir -p "$OUT" "$work/site"
export PYTHONPATH=$work/site:$PWD PYTHONUNBUFFERED=1
python3 -m pip install -q --no-index --no-deps --no-compile --target "$work/site" "$wheels"/*.whl
bash tests/gpu/setup_nsys.sh "$debs" || echo "setup_nsys failed"
exec > >(tee "$OUT/log.txt") 2>&1
cd "$work" || exit 1

profile() { # profile NAME ARGUMENT…
    local name=$1 began=$SECONDS
    shift
    timeout --signal=INT --kill-after=10 150 python3 -m tracelab profile -o "$name" --repeat 2 "$@" >"$name.out" 2>"$name.err" </dev/null
    echo "[$name] rc $? after $((SECONDS - began)) s, at $SECONDS s: $*"
    tail -n 9 "$name.out"
    grep -v '^\s*$' "$name.err" | head -5
}

diff() { # diff TITLE WORD…
    local title=$1
    shift
    echo "== $title: tracelab diff $*"
    python3 -m tracelab diff "$@"
    echo "exit code $?"
}

profile eager llama8b
profile graph llama8b --graph
profile split llama8b --ctx 32768 --layers 8 --steps 8 --graph
profile serial llama8b --ctx 32768 --layers 8 --steps 8 --graph --starve gqa=serial
profile mla_split kimi-linear-mini --ctx 32768 --steps 8 --graph
profile mla_unsplit kimi-linear-mini --ctx 32768 --steps 8 --graph --starve mla=unsplit
profile heads_96 k3-rank --steps 8 --graph
profile heads_12 k3-rank --heads 12 --steps 8 --graph

for name in eager graph split serial mla_split mla_unsplit heads_96 heads_12; do
    diff "$name, two captures" "$name/1" "$name/2" | grep -E '^(==|[A-Z ]+:|  step|exit)'
done
diff "eager against graph" eager graph
diff "one capture each" eager/1 graph/1 | head -8
diff "split against serial" split serial
diff "MLA split against unsplit" mla_split mla_unsplit
diff "96 heads against 12" heads_96 heads_12
diff "ladder" mla_unsplit mla_split mla_unsplit
cat >budgets.toml <<'TOML'
[limits]
kernels_per_step = { max = 300 }
launch_gap_share = { max = "5 %" }
mbu = { min = "70 %" }
failed_launches = { max = 0 }

[phases."L#/ffn"]
mbu = { min = "80 %" }

[kernels]
must_run = ["split_kv_decode"]
TOML
for name in graph eager; do
    python3 -m tracelab check "$name/1/trace.sqlite" --budget budgets.toml
    echo "exit code $?"
done
rm -rf ./*/[0-9]/private
tar -cf - ./*/[0-9] ./*/repeat.txt | xz -T0 -6 | split -b 15m - "$OUT/runs.tar.xz."
echo "done at $SECONDS s"
