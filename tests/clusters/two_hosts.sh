#!/usr/bin/env bash
# Runs a command while two hosts, node07 and node08, can be reached by `ssh`: network namespaces joined by a
# cable, and a stand-in for ssh that starts a command in one of them. Needs root and iproute2.
# usage: two_hosts.sh COMMAND…
set -euo pipefail
folder=$(mktemp -d)
id=$$
address=10.$((100 + id / 250 % 60)).$((id % 250))
name() { printf 'tr%s%s' "$id" "$1"; }
clean() {
  for host in node07 node08; do
    ip netns del "$(name $host)" 2>/dev/null || true
    rm -rf "/etc/netns/$(name $host)"
  done
  rmdir --ignore-fail-on-non-empty /etc/netns 2>/dev/null || true
  rm -rf "$folder"
}
trap clean EXIT
for host in node07 node08; do
  ip netns add "$(name $host)"
  ip -n "$(name $host)" link set lo up
  mkdir -p "/etc/netns/$(name $host)"   # `ip netns exec` shows it as /etc/hosts
  printf '127.0.0.1 localhost\n%s.7 node07\n%s.8 node08\n' "$address" "$address" >"/etc/netns/$(name $host)/hosts"
done
ip -n "$(name node07)" link add eth0 type veth peer name eth0 netns "$(name node08)"
for host in node07 node08; do
  ip -n "$(name $host)" addr add "$address.${host#node0}/24" dev eth0
  ip -n "$(name $host)" link set eth0 up
done
mkdir "$folder/bin"
cat >"$folder/bin/ssh" <<END
#!/bin/sh
host=\$1
shift
exec ip netns exec tr${id}\$host env TRIREME_HOST=\$host "\$@"
END
chmod +x "$folder/bin/ssh"
PATH=$folder/bin:$PATH "$@"
