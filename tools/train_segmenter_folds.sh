#!/bin/bash
# Trains line networks side by side on one GPU: one for each of five folds by collection, one on everything but what
# the report is on.
#   tools/train_segmenter_folds.sh PACK OUT MINUTES [option of `spikehtr segmenter train` ...]
#   DRAWN=drawn tools/train_segmenter_folds.sh ...
# PACK is made by `spikehtr segmenter pack`; with DRAWN each network learns from the composed pages in DRAWN/0 to
# DRAWN/4 and DRAWN/all, too (`spikehtr segmenter compose --like PACK --fold 0 -o DRAWN/0` and so on; without --fold
# for DRAWN/all). A run that was stopped goes on where it was when the script is called again.
# OUT holds a folder for each: segmenter.safetensors, report.html, pages.jsonl, log.jsonl.
set -u
pack=$1 out=$2 minutes=$3
shift 3
export PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}" OMP_NUM_THREADS=1
mkdir -p "$out"
train() {  # NAME [option ...]
    local name=$1 began=$SECONDS
    shift
    local drawn=()
    if [ -n "${DRAWN:-}" ]; then drawn=("$DRAWN/$name"); fi
    local command=(python3 -m spikehtr segmenter train "$pack" "${drawn[@]}" -o "$out/$name" --minutes "$minutes" --resume "$@")
    "${command[@]}" >"$out/$name.txt" 2>&1 && return
    # Several processes that start on one card at once: one may be refused. It is started again, once.
    [ $((SECONDS - began)) -gt 60 ] && return 1
    sleep 5
    "${command[@]}" >>"$out/$name.txt" 2>&1
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
    echo "== $name"
    tail -n 4 "$out/$name.txt"
done
exit $failed
