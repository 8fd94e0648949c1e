# shellcheck shell=bash
# Shared by the scripts in this directory; sourced, never run.

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
# The same flags everywhere, so that build, vet and staticcheck compile every
# dependency once between them.
export GOFLAGS='-tags=libvirt_dlopen -trimpath'
state=${CROFT_STATE_DIR:-/var/lib/croft}
export PATH=$PATH:/usr/local/go/bin:/usr/sbin:/sbin

if [ -t 2 ] && [ -z "${NO_COLOR:-}" ]; then
	bold=$'\e[1m' dim=$'\e[2m' red=$'\e[31m' plain=$'\e[0m'
else
	bold='' dim='' red='' plain=''
fi

# say WORDS: a line for the person who is watching.
say() { printf '%s\n' "$*" >&2; }

# die SENTENCE: say what is wrong and what to do, then end.
die() {
	printf '%serror:%s %s\n' "$red" "$plain" "$*" >&2
	exit 1
}

# seconds SINCE: the time from SINCE, a value of $EPOCHREALTIME, until now, as 12.3.
seconds() {
	local us=$((${EPOCHREALTIME/[.,]/} - ${1/[.,]/}))
	printf '%d.%d' $((us / 1000000)) $((us / 100000 % 10))
}

# step TITLE COMMAND...: run one step and say how long it took. Its own output
# stays visible, below its title.
step() {
	local title=$1 start=$EPOCHREALTIME
	shift
	say "${bold}==> $title${plain}"
	"$@" || die "this step ended with status $?: $title"
	say "${dim}    $(seconds "$start") s${plain}"
}

# part TITLE FUNCTION...: a step of a test, every command of which has to succeed; in a
# step, as in any condition, the shell would overlook those that fail.
part() {
	local title=$1 start=$EPOCHREALTIME
	shift
	say "${bold}==> $title${plain}"
	set -E
	trap 'say "${red}error:${plain} this ended with status $?: $BASH_COMMAND"' ERR
	"$@"
	trap - ERR
	say "${dim}    $(seconds "$start") s${plain}"
}

# until_true SECONDS COMMAND...: ask until COMMAND succeeds, at most that long.
until_true() {
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		[ "$SECONDS" -lt "$end" ] || return 1
		sleep 0.1
	done
}

# cache: what several checkouts of the same files can share.
cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/croft

# built IMAGE BUILDER...: BUILDER IMAGE, or a copy of what the same files in scripts/guest and the same arguments made
# before. Copies that nobody asked for in a month go when the next one is made.
built() {
	local image=$1 digest kept
	shift
	digest=$({ printf '%s\n' "$@" && find scripts/guest -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum; } | sha256sum)
	kept=$cache/images/$(basename "$image" .qcow2)-${digest:0:16}.qcow2
	if [ ! -e "$kept" ]; then
		mkdir -p "$cache/images"
		find "$cache/images" -name '*.qcow2' -mtime +30 -delete
		"$@" "$kept" || return # in a step the shell goes on by itself
	fi
	touch -c "$kept" 2> /dev/null || true # where root built it, it keeps its age
	cmp -s "$kept" "$image" || cp --reflink=auto "$kept" "$image"
}

# binary_of COMMIT: build/croft-COMMIT, built from that commit unless it is there.
binary_of() {
	local commit=$1 tree
	[ ! -x "build/croft-$commit" ] || return 0
	git rev-parse --quiet --verify "$commit^{commit}" > /dev/null ||
		die "this checkout has no commit $commit: name an older version in CROFT_PREVIOUS, or fetch the whole history"
	tree=$(mktemp -d)
	git worktree add --quiet --detach "$tree" "$commit"
	(cd "$tree" && go build -ldflags "-s -w -X main.version=$commit -X croft/internal/build.Version=$commit" -o "$OLDPWD/build/croft-$commit" ./cmd/croft)
	git worktree remove --force "$tree"
}

# want SENTENCE COMMAND...: the sentence has to be true.
want() {
	local sentence=$1
	shift
	"$@" || die "not so: $sentence ($*)"
	say "    $sentence"
}
# is GOT WANT, not COMMAND...: what may be wanted.
is() { [ "$1" = "$2" ] || { say "    it is $1, not $2"; return 1; }; }
not() { ! "$@"; }

# as_root COMMAND...: COMMAND as root, through sudo where need be.
as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	elif command -v sudo > /dev/null; then
		sudo "$@"
	else
		die "root is needed for: $* (run this as root, or install sudo)"
	fi
}

# running_cloud: the process that holds the lock on the state directory; fails
# where there is none. The file names the last one that did.
running_cloud() {
	[ -e "$state/croft.pid" ] && ! flock --nonblock "$state/croft.pid" true && cat "$state/croft.pid"
}
