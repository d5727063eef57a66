#!/bin/sh
# count_changed_lines.sh FOLDER LIMIT: prints the lines of main.cc that before.cc does not have, and
# fails if there are more than LIMIT. A line removed from before.cc counts too.
added=$(diff "$1/before.cc" "$1/main.cc" | grep -c '^>')
removed=$(diff "$1/before.cc" "$1/main.cc" | grep -c '^<')
changed=$((added > removed ? added : removed))
echo "$changed changed lines, at most $2 allowed"
[ "$changed" -gt 0 ] && [ "$changed" -le "$2" ]
