# shellcheck shell=sh
# What tools/fetch-* have in common; sourced by them. Packages of Debian are fetched from the mirror
# of the machine's own apt sources and unpacked, never installed; the lists of the machine's apt
# stay untouched. What is there already stays, and one of several processes fetches.
#
#   is_there                 whether $dir has what is asked for; a caller whose DIR had less once
#                            says so after it has sourced this
#   begin DIR PROGRAM...     ends the script where DIR is there; sets own (the machine's suite) and
#                            work, an empty directory that is removed at the end
#   suites SUITE...          what private_apt knows
#   private_apt COMMAND...   apt-get with lists and cache of its own below $work
#   unpack PACKAGE...        into $work/root
#   finish                   makes DIR of $work/out: bin/, and version, written last
#
# shellcheck disable=SC2034  # own, work: the caller's
set -eu

fail() {
    echo "${0##*/}: $*" >&2
    exit 1
}

is_there() {
    [ -e "$dir/version" ]
}

begin() {
    dir=$1
    shift
    ! is_there || exit 0
    keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    for program in apt-get dpkg-deb flock "$@"; do
        command -v "$program" >/dev/null 2>&1 || fail "needs $program"
    done
    [ -r $keyring ] || fail "needs $keyring (apt-get install debian-archive-keyring)"
    # shellcheck source=/dev/null
    own=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    mirror=$("$(dirname "$0")/debian-mirror") || exit 1

    mkdir -p "$(dirname "$dir")"
    dir=$(cd "$(dirname "$dir")" && pwd)/${dir##*/}
    exec 9>"$dir.lock"
    flock 9
    ! is_there || exit 0

    work=$(mktemp -d "$dir.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/root" "$work/out/bin"
}

suites() {
    for each in "$@"; do
        echo "deb [signed-by=$keyring] $mirror $each main"
    done | sort -u >"$work/sources.list"
    private_apt update
}

private_apt() {
    apt-get -q -y \
        -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=- \
        -o Dir::State::lists="$work/lists" -o Dir::Cache="$work/cache" \
        -o Acquire::Languages=none -o Acquire::Retries=2 -o Acquire::http::Timeout=30 \
        -o APT::Sandbox::User=root -o APT::Update::Error-Mode=any -o Debug::NoLocking=1 \
        "$@" >"$work/log" 2>&1 ||
        fail "apt-get $1 failed: $(tail -n 3 "$work/log" | tr '\n' ' ')"
}

unpack() {
    for each in "$@"; do
        dpkg-deb -x "$each" "$work/root"
    done
}

finish() {
    rm -rf "$dir"
    mv "$work/out" "$dir"
}
