#!/bin/sh
# croft-beat sends the beats of this node to its controllers, and sees to it that exclusive jobs run here only while a
# controller has granted a lease. It needs a POSIX shell, ssh and /proc.
#
#   CONTROLLERS  ssh destinations, such as "grid@ctl1 grid@ctl2"
#   EVERY        seconds between two beats: as watch.every in cluster.yaml (10)
#   LEASE        seconds of a lease; 0: none (0). At most half of watch.grace
#   STOP         ends all exclusive jobs of this node; its exit code 0 means that none runs any more
#   START        starts them; called when a lease is had again (nothing)
#   LAST         runs when STOP has not succeeded for as long as a lease, such as "reboot -f" (nothing)
#   REV          the file rev that grid apply keeps here, to tell the revision (nothing)
#   RUN          a directory of this script alone (/run/croft-beat)
#   SSH          how to reach a controller (ssh with timeouts)
#
# STOP and START are read by sh, can be repeated, and must not wait for the network. STOP is also run when this script
# begins without a lease, and when it is told to end.
set -u
: "${CONTROLLERS:?say where the beats go, such as CONTROLLERS=grid@ctl1}"
EVERY=${EVERY:-10} LEASE=${LEASE:-0} STOP=${STOP:-} START=${START:-:} LAST=${LAST:-} REV=${REV:-}
RUN=${RUN:-/run/croft-beat}
SSH=${SSH:-ssh -T -o BatchMode=yes -o ConnectTimeout=5 -o ServerAliveInterval=5 -o ServerAliveCountMax=1}
if [ "$LEASE" -gt 0 ] && [ -z "$STOP" ]; then
	echo "croft-beat: LEASE=$LEASE without STOP: a lease promises that the exclusive jobs end with it" >&2
	exit 1
fi
umask 077
mkdir -p "$RUN" || exit 1
read -r boot </proc/sys/kernel/random/boot_id
guard=$$

# now is the time since the boot, in hundredths of a second.
now() {
	read -r up _ </proc/uptime
	echo "${up%.*}${up#*.}"
}

# keep FILE TIME: replaces a file with a moment of this boot.
keep() { echo "$boot $2" >"$1.new" && mv -f "$1.new" "$1"; }

# moment FILE: the moment in it, or 0.
moment() {
	was='' at=0
	[ -r "$1" ] && read -r was at <"$1"
	[ "$was" = "$boot" ] || at=0
	echo "${at:-0}"
}

# beats CONTROLLER FILE: sends beats, and keeps in the file until when that controller's lease lasts. It counts from
# before the beat was sent. When the guard does not live any more, none is sent; when it does not move, no lease is asked
# for.
beats() {
	while kill -0 "$guard" 2>/dev/null; do
		sent=$(now) lease=$LEASE revision=
		[ $((sent - $(moment "$RUN/guard"))) -lt 500 ] || lease=0
		[ -n "$REV" ] && revision=$(sed -n 's/^revision \([a-z]*:[0-9a-f]*\)$/\1/p' "$REV" 2>/dev/null)
		read -r load _ </proc/loadavg
		# shellcheck disable=SC2086 # SSH is a program and its arguments
		reply=$(echo "beat $boot $sent ${revision:--} $load $lease" | $SSH "$1" 2>/dev/null)
		case $reply in
		"granted $LEASE") [ "$LEASE" -gt 0 ] && keep "$2" $((sent + LEASE * 100)) ;;
		"refused out") keep "$2" 0 ;;
		esac
		sleep "$EVERY"
	done
}

# leased: is there a lease now?
leased() {
	for file in "$RUN"/until.*; do
		[ "$(moment "$file")" -gt "$(now)" ] && return 0
	done
	return 1
}

# begin COMMAND: runs it beside this script, in a group of its own.
task=
apart=$(command -v setsid || :)
begin() {
	$apart sh -c "$1" &
	task=$!
}

# drop ends what begin began, and waits until it has ended.
drop() {
	[ -z "$task" ] && return
	kill -9 "-$task" 2>/dev/null || kill -9 "$task" 2>/dev/null
	wait "$task" 2>/dev/null
	task=
}

senders=
number=0
keep "$RUN/guard" "$(now)"
for controller in $CONTROLLERS; do
	number=$((number + 1))
	beats "$controller" "$RUN/until.$number" &
	senders="$senders $!"
done

# shellcheck disable=SC2317 # a trap calls it
finish() {
	trap '' TERM INT HUP
	# shellcheck disable=SC2086 # several numbers
	kill $senders 2>/dev/null
	drop
	rm -f "$RUN"/until.*
	[ "$LEASE" -eq 0 ] || sh -c "$STOP"
	exit 0
}
trap finish TERM INT HUP

# The guard. state is what the jobs are: unknown, starting, started, stopping or stopped.
state=unknown since=0
while :; do
	keep "$RUN/guard" "$(now)"
	if [ "$LEASE" -eq 0 ]; then
		state=unwatched
	elif leased; then
		case $state in
		starting | started) ;;
		*)
			drop
			begin "$START"
			state=starting
			;;
		esac
	else
		case $state in
		stopping | stopped) ;;
		*)
			drop
			since=$(now)
			begin "$STOP"
			state=stopping
			;;
		esac
	fi
	if [ -n "$task" ] && ! kill -0 "$task" 2>/dev/null; then
		if wait "$task"; then
			case $state in starting) state=started ;; stopping) state=stopped ;; esac
			task=
		elif [ "$state" = starting ]; then
			begin "$START"
		else
			begin "$STOP"
		fi
	fi
	if [ "$state" = stopping ] && [ -n "$LAST" ] && [ $(($(now) - since)) -gt $((LEASE * 100)) ]; then
		sh -c "$LAST"
	fi
	echo "$state" >"$RUN/state"
	sleep 1 &
	wait $!
done
