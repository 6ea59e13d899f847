#!/bin/sh
# Once a cgroup has a CPU burst budget, the kernel refuses every quota below that budget, so whoever
# does not know of the budget cannot lower the limit any more, and is told EINVAL for a valid value.
# Hurts who resizes pods in place: kubelet, runc and systemd know no budget, and try in vain for ever.
set -eu
[ "$(id -u)" = 0 ] || { echo "needs root"; exit 2; }
v2=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
v1=$(awk '$3 == "cgroup" && $4 ~ /(^|,)cpu(,|$)/ { print $2; exit }' /proc/mounts)
if [ -n "$v1" ]; then
    dir=$(mktemp -d "$v1/finding-XXXXXX")
    quota=cpu.cfs_quota_us burst=cpu.cfs_burst_us
elif grep -qw cpu "${v2:-/nowhere}/cgroup.subtree_control"; then
    dir=$(mktemp -d "$v2/finding-XXXXXX")
    quota=cpu.max burst=cpu.max.burst
else
    echo "needs a cgroup hierarchy with the cpu controller"
    exit 2
fi
trap 'rmdir "$dir"' EXIT
[ -e "$dir/$burst" ] || { echo "needs Linux 5.14 (CPU burst)"; exit 2; }

results=
write() { # VALUE FILE: what the kernel says to it
    if sh -c 'printf %s "$1" >"$2"' - "$1" "$dir/$2" 2>/dev/null; then result=taken; else result=refused; fi
    printf '%s to %-16s %s\n' "$1" "$2" "$result"
    results="$results $result"
}

echo "Linux $(uname -r)"
write 50000 "$quota"
write 50000 "$burst"
write 40000 "$quota" # a smaller quota is as valid as the first one
write 40000 "$burst"
write 40000 "$quota"
[ "$results" = " taken taken refused taken taken" ]
