#!/bin/bash
# Trains line networks side by side on one GPU: one for each of five folds by collection, one on everything.
#   tools/train_segmenter_folds.sh PACK OUT MINUTES [option of `train` ...]
# PACK is made by `python -m spikehtr.pages.segment pack`. In OUT: weights-NAME.safetensors and results.tar.gz.
set -u
pack=$1 out=$2 minutes=$3
shift 3
runs=$(mktemp -d)
export PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}" OMP_NUM_THREADS=1
mkdir -p "$out"
train() {  # NAME [option ...]
    local name=$1 began=$SECONDS
    shift
    local command=(python3 -m spikehtr.pages.segment train "$pack" --also pages --minutes "$minutes" --out "$runs/$name" "$@")
    "${command[@]}" >"$runs/$name.txt" 2>&1 && return
    # Several processes that start on one card at once: one may be refused. It is started again, once.
    if [ $((SECONDS - began)) -gt 60 ] || [ -f "$runs/$name/log.jsonl" ]; then return 1; fi
    sleep 5
    "${command[@]}" >>"$runs/$name.txt" 2>&1
}
waiting=()
for name in 0 1 2 3 4 all; do
    fold=()
    if [ "$name" != all ]; then fold=(--fold "$name"); fi
    train "$name" "${fold[@]}" "$@" &
    waiting+=($!)
    sleep 2
done
failed=0
for process in "${waiting[@]}"; do wait "$process" || failed=1; done
for name in 0 1 2 3 4 all; do
    if [ -f "$runs/$name/weights.safetensors" ]; then cp "$runs/$name/weights.safetensors" "$out/weights-$name.safetensors"; fi
    echo "== $name"
    tail -n 1 "$runs/$name/log.jsonl"
    grep -E "^(group|layout|pages|all|Traceback|[A-Za-z]*Error)" "$runs/$name.txt" | head -n 4
done
tar -C "$runs" --exclude='*.safetensors' -czf "$out/results.tar.gz" .
exit $failed
