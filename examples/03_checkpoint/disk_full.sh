#!/usr/bin/env bash
# disk_full.sh PROGRAM DIR: a full disk while saving (here by a file size limit; ENOSPC is tested in
# storage/folder_test) ends with exit code 170, and the run continues at the checkpoint before.
set -u
program=$1 directory=$2
rm -rf "$directory"
fail() { echo "disk_full: $*"; exit 1; }

"$program" "$directory" 7 >/dev/null 2>&1
[ $? = 137 ] || fail "it was not killed after step 7"
# 1 KiB: the state has 2. Without patience the job ends at the first save that fails.
said=$( (ulimit -f 1 && TRIREME_CHECKPOINT_PATIENCE=0 exec "$program" "$directory") 2>&1)
code=$?
echo "$said"
[ $code = 170 ] || fail "exit $code instead of 170"
grep -q 'state.safetensors: File too large' <<<"$said" || fail "it does not name the file"
[ "$(ls -A "$directory" | tr '\n' ' ')" = '.lock latest step-00000005 ' ] || fail "left: $(ls -A "$directory")"
"$program" "$directory" | grep -q '^goes on at step 5' || fail "it does not go on with step 5"
echo 'disk_full: the checkpoint before stayed whole'
