#!/usr/bin/env bash
# expect.sh TEXT COMMAND…: COMMAND exits 0 and prints TEXT. (ctest's PASS_REGULAR_EXPRESSION alone
# does not look at the exit code.)
text=$1
shift
printed=$("$@" 2>&1)
code=$?
printf '%s\n' "$printed"
if [ $code != 0 ]; then echo "expect.sh: exit $code"; exit 1; fi
grep -qF -- "$text" <<<"$printed" || { echo "expect.sh: '$text' was not printed"; exit 1; }
