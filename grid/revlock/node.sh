# shellcheck shell=sh disable=SC2154
# The node's side. The caller sets: mark (a word that nobody else knows), base (the state directory, or nothing),
# cluster, and for a holder mode (-x or -s), who, wait and quiet (seconds).

# fail REASON...: the answer of whatever cannot be done
fail() {
	printf '\n%s fail %s\n' "$mark" "$(printf '%s' "$*" | tr '\n' ' ')"
	exit 70
}

place() {
	if [ -z "$base" ]; then
		if [ "$(id -u)" = 0 ]; then
			base=/var/lib/croft/grid
		else
			base=${XDG_STATE_HOME:-$HOME/.local/state}/croft/grid
		fi
	fi
	dir=$base/$cluster
	umask 077
}

boot() { cat /proc/sys/kernel/random/boot_id 2>/dev/null || echo unknown; }
now() { date -u +%Y-%m-%dT%H:%M:%SZ; }
epoch() {
	e=$(sed -n 's/^epoch \([0-9][0-9]*\)$/\1/p' "$dir/rev" 2>/dev/null)
	echo "${e:-0}"
}

# keep FILE: its standard input becomes the file, whole or not at all
keep() {
	cat >"$dir/$1.new" || return 1
	sync "$dir/$1.new" 2>/dev/null || sync
	mv -f "$dir/$1.new" "$dir/$1" || return 1
	sync "$dir" 2>/dev/null || sync
}

note() {
	printf '%s %s\n' "$(now)" "$*" >>"$dir/journal"
}

# commit: the applied document is the standard input; the new rev is $1
commit() {
	keep applied.json || return 1
	printf '%s\n' "$1" | keep rev
}

# flush FILES...: they outlast the power
flush() { sync "$@" 2>/dev/null || sync; }

# arm ID SECONDS TITLE KEEP: the script that takes a change back is the standard input. It runs after that time unless a
# verdict is there. KEEP is a script that runs before: what it puts into the directory $kept is there for the other one.
# The watcher keeps descriptor 9, so that nobody else has the node meanwhile.
arm() {
	kept=$dir/armed/$1.kept
	mkdir -p "$kept" && cat >"$dir/armed/$1.sh" && printf '%s\n' "$3" >"$dir/armed/$1.title" || return 1
	(eval "$4") </dev/null || return
	cat >"$dir/armed/$1.new" <<-END || return 1
		id='$1' seconds='$2' mark='$mark' dir='$dir'
		$functions
		watch
	END
	flush "$dir/armed/$1.sh" "$dir/armed/$1.title" "$dir/armed/$1.new" "$kept"/* "$kept"
	mv -f "$dir/armed/$1.new" "$dir/armed/$1.watch" || return 1
	flush "$dir/armed" "$dir"
	if command -v setsid >/dev/null 2>&1; then
		setsid sh "$dir/armed/$1.watch" </dev/null >/dev/null 2>&1 &
	else
		sh "$dir/armed/$1.watch" </dev/null >/dev/null 2>&1 &
	fi
}

# watch: what arm starts
watch() {
	trap : HUP INT TERM # not ignored: what the script starts would inherit that
	at=$dir/armed/$id
	n=0
	while [ "$n" -lt "$seconds" ] && [ ! -h "$at.verdict" ] && [ ! -e "$at.now" ]; do
		sleep 1
		n=$((n + 1))
	done
	exec 8>>"$dir/order"
	flock 8
	if ln -s back "$at.verdict" 2>/dev/null; then
		take_back
	fi
	rm -rf "$at.kept" "$at.sh" "$at.watch" "$at.now"
}

# take_back: what follows from the verdict back; again, if it was cut off
take_back() {
	e=$(($(epoch) + 1))
	sed "s/^epoch .*/epoch $e/; s/^phase .*/phase returning/" "$dir/rev" | keep rev
	kept=$at.kept sh "$at.sh" </dev/null >"$at.log" 2>&1 8>&- 9>&-
	rc=$?
	note "$e taken back $id: exit code $rc"
	sed 's/^phase .*/phase returned/' "$dir/rev" | keep rev
	echo "$rc" >"$at.rc"
}

# unwatched: the ids of changes that nobody confirmed, and that have lost their watcher, as when the node restarts. A
# watcher has the lock, so this is for whoever has it, or sees that it is free.
unwatched() {
	for w in "$dir"/armed/*.watch; do
		[ ! -e "$w" ] || [ "$(readlink "${w%.watch}.verdict")" = confirmed ] || basename "$w" .watch
	done
}

# return_unwatched: takes them back; the caller has the lock
return_unwatched() {
	trap : HUP INT TERM
	for id in $(unwatched); do
		at=$dir/armed/$id
		ln -s back "$at.verdict" 2>/dev/null
		take_back
		rm -rf "$at.kept" "$at.sh" "$at.watch" "$at.now"
	done
}

# give_back: takes back what lost its watcher, and says what, and whether all of it could be done
give_back() {
	place
	exec 9>>"$dir/lock"
	if ! flock -n -x 9; then
		printf '\n%s given busy\n' "$mark"
		return
	fi
	list=$(unwatched)
	return_unwatched
	printf '\n%s given back\n' "$mark"
	for id in $list; do
		printf '%s %s\n' "$(cat "$dir/armed/$id.rc")" "$(head -n 1 "$dir/armed/$id.title")"
	done
}

# settle ID VERDICT: the first verdict counts; prints it
settle() {
	place
	at=$dir/armed/$1
	if [ -e "$at.watch" ] || [ -h "$at.verdict" ]; then
		ln -s "$2" "$at.verdict" 2>/dev/null
		n=0
		while [ "$(readlink "$at.verdict")" = confirmed ] && [ -e "$at.watch" ] && [ "$n" -lt 5 ]; do
			sleep 1 # the watcher sees it and gives the lock back
			n=$((n + 1))
		done
		printf '\n%s verdict %s\n' "$mark" "$(readlink "$at.verdict")"
	else
		printf '\n%s verdict none\n' "$mark"
	fi
}

# recall ID: has the change taken back now, and waits until that is done
recall() {
	place
	at=$dir/armed/$1
	[ -e "$at.watch" ] && : >"$at.now"
	n=0
	while [ -e "$at.watch" ] && [ "$n" -lt "$2" ]; do
		(flock -n -x 9 && return_unwatched) 9>>"$dir/lock" # if the watcher is gone
		[ ! -e "$at.watch" ] || sleep 1
		n=$((n + 1))
	done
	verdict=$(readlink "$at.verdict" || echo none)
	printf '\n%s verdict %s %s\n' "$mark" "$verdict" "$(cat "$at.rc" 2>/dev/null)"
}

# look: the state, without a lock
look() {
	place
	printf '\n%s boot %s\n' "$mark" "$(boot)"
	if [ -r "$dir/holder" ] && ! (flock -n -s 7) 7<"$dir/lock" 2>/dev/null; then
		printf '%s holder %s\n' "$mark" "$(head -n 1 "$dir/holder")"
	fi
	for r in "$dir"/reader.*; do
		[ -r "$r" ] && ! (flock -n -x 7) 7<"$dir/lock" 2>/dev/null &&
			kill -0 "${r##*.}" 2>/dev/null && printf '%s reader %s\n' "$mark" "$(head -n 1 "$r")"
	done
	list=$(unwatched)
	if [ -n "$list" ] && (flock -n -s 7) 7<"$dir/lock" 2>/dev/null; then
		for id in $list; do
			printf '%s unwatched %s\n' "$mark" "$(head -n 1 "$dir/armed/$id.title")"
		done
	fi
	printf '%s rev\n' "$mark"
	[ ! -e "$dir/rev" ] || head -c 60000 "$dir/rev"
	printf '\n%s applied\n' "$mark"
	[ ! -e "$dir/applied.json" ] || cat "$dir/applied.json"
	if [ -n "$table" ]; then
		printf '\n%s firewall\n' "$mark"
		nft -s list table inet "$table" 2>/dev/null
	fi
	printf '\n%s end\n' "$mark"
}

# guard: ends the holder when no beat comes for a while
guard() {
	trap 'kill "$s" 2>/dev/null; exit 0' TERM
	trap : USR1
	while :; do
		sleep "$quiet" &
		s=$!
		if wait "$s"; then
			kill -TERM "$holder"
			exit 0
		fi
		kill "$s" 2>/dev/null
	done
}

guarded() {
	guard </dev/null >/dev/null 2>&1 8>&- 9>&- &
	guard=$!
}

unguarded() {
	kill -TERM "$guard" 2>/dev/null
	wait "$guard" 2>/dev/null
}

# answer BOUND WORDS...: ends both streams of an order, once its input was read: the next order comes then
answer() {
	[ "$size" = 0 ] || cat >/dev/null
	printf '\n%s\n' "$*"
	printf '\n%s\n' "$*" >&2
}

# order KIND EPOCH BOUND WORDS SCRIPT: runs the script, of kind run without the lock's descriptors
order() {
	(
		trap - TERM HUP
		exec 8>>"$dir/order" || exit 1
		flock 8
		at=$(epoch)
		if [ "$at" != "$2" ]; then
			answer "$3" stale "$at"
			exit 0
		fi
		if ! note "$2 start $4" 2>/dev/null; then
			answer "$3" full "$dir/journal"
			exit 0
		fi
		if [ "$1" = run ]; then
			(eval "$5") 8>&- 9>&-
		else
			(eval "$5") 8>&-
		fi
		rc=$?
		note "$2 end $4: exit code $rc" 2>/dev/null
		answer "$3" exit "$rc"
		exit 0
	)
}

# hold: takes the lock and runs orders until its input ends or is quiet for too long
hold() {
	place
	holder=$$
	command -v flock >/dev/null 2>&1 || fail 'flock(1) is missing there: install util-linux'
	why=$( (mkdir -p "$dir" && : >>"$dir/lock" && : >>"$dir/order" && : >>"$dir/journal") 2>&1) ||
		fail "cannot write its state directory: $why"
	exec 9>>"$dir/lock"
	n=0
	until flock -n "$mode" 9; do
		n=$((n + 1))
		if [ "$n" -gt "$wait" ]; then
			printf '\n%s busy %s\n' "$mark" "$(cat "$dir/holder" "$dir"/reader.* 2>/dev/null | head -n 1)"
			exit 75
		fi
		sleep 1
	done
	read -r _ _ _ _ group _ </proc/$$/stat
	if [ "$mode" = -x ]; then
		rm -f "$dir"/reader.*
		(return_unwatched)
		rm -rf "$dir/armed"
		name=holder
		[ "$(wc -c <"$dir/journal")" -lt 1048576 ] || mv -f "$dir/journal" "$dir/journal.1"
	else
		name=reader.$$
	fi
	echo "$(now) $$ ${group:-0} $who" 2>/dev/null >"$dir/$name" ||
		fail "cannot write its state directory $dir: is its disk full?"
	printf '\n%s held %s|%s\n' "$mark" "$(boot)" "$([ ! -e "$dir/rev" ] || head -c 60000 "$dir/rev" | tr '\n' '|')"
	gone=
	guarded
	while read -r kind epoch size bound words; do
		if [ -z "$kind" ]; then # a beat
			kill -USR1 "$guard"
			continue
		fi
		read -r script || break
		script=$(printf '%b' "$script")
		trap 'gone=1' TERM HUP
		unguarded
		if [ "$size" = 0 ]; then
			order "$kind" "$epoch" "$bound" "$words" "$script" </dev/null
		else
			head -c "$size" | order "$kind" "$epoch" "$bound" "$words" "$script"
		fi
		[ -z "$gone" ] || break
		trap - TERM HUP
		guarded
	done
	unguarded
	for w in "$dir"/armed/*.watch; do
		[ ! -e "$w" ] || name=none # the watcher still has the lock, for the same client
	done
	rm -f "$dir/$name"
}

# ours PID: whether it is a holder of this cluster
ours() { [ -n "$1" ] && tr '\0' ' ' <"/proc/$1/cmdline" 2>/dev/null | grep -q "$cluster"; }

# end_holders: ends those that have the lock, and the orders that they run
end_holders() {
	for f in "$dir/holder" "$dir"/reader.*; do
		read -r _ pid group _ 2>/dev/null <"$f" || continue
		ours "$pid" || continue
		kill -KILL "$pid" 2>/dev/null
		[ "${group:-0}" = 0 ] || kill -KILL -"$group" 2>/dev/null
	done
}

# break_lock: raises the epoch, and ends whoever holds the lock
break_lock() {
	place
	[ -e "$dir/lock" ] || fail 'nothing was ever locked there'
	if (flock -n -x 9) 9>>"$dir/lock"; then
		printf '\n%s broken free\n' "$mark"
		return
	fi
	exec 8>>"$dir/order"
	n=0
	until flock -n 8; do
		n=$((n + 1))
		[ "$n" != 5 ] || end_holders
		[ "$n" -lt 15 ] || fail 'an order that its holder runs does not end'
		sleep 1
	done
	e=$(epoch)
	if [ -e "$dir/rev" ]; then
		sed "s/^epoch .*/epoch $((e + 1))/" "$dir/rev" | keep rev || fail 'cannot write its state directory'
	else
		printf 'epoch 1\nphase applying\n' | keep rev || fail 'cannot write its state directory'
	fi
	note "$((e + 1)) broken by $who: $reason"
	exec 8>&-
	end_holders
	n=0
	until (flock -n -x 9) 9>>"$dir/lock"; do
		n=$((n + 1))
		[ "$n" -lt 10 ] || fail 'the epoch is raised, and a change that nobody confirmed still has the lock: wait'
		sleep 1
	done
	printf '\n%s broken held\n' "$mark"
}
