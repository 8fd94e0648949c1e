# shellcheck shell=sh disable=SC2154 # the programs set suite, mirror, cache, refresh, output, compress
# What both image builders share; sourced, never run.
#
# A disk is made in plain files, without root, loop device or mount:
#   partition 1: FAT16 with SYSLINUX, the kernel and its initramfs
#   partition 2: the root file system, where there is one; last, so that it can grow
# SYSLINUX and not GRUB: under software emulation it loads the kernel in a
# tenth of the time.

prog=${0##*/}
say() { printf '%s: %s\n' "$prog" "$*" >&2; }
die() {
	say "$*"
	exit 1
}

# need COMMAND:PACKAGE...: one line that names everything missing and how to get it.
need() {
	PATH=$PATH:/usr/sbin:/sbin
	lacking='' packages=''
	for pair; do
		command -v "${pair%%:*}" >/dev/null 2>&1 && continue
		lacking="$lacking ${pair%%:*}"
		case " $packages " in *" ${pair##*:} "*) ;; *) packages="$packages ${pair##*:}" ;; esac
	done
	[ -z "$lacking" ] ||
		die "these tools are needed and not here:$lacking; run: apt-get install -y --no-install-recommends$packages"
}

# need_disk_tools EXTRA...: what make_disk, package_tar and finish call, and EXTRA.
need_disk_tools() {
	need mmdebstrap:mmdebstrap sfdisk:fdisk mkfs.vfat:dosfstools mcopy:mtools syslinux:syslinux \
		qemu-img:qemu-utils "$@"
	[ -f "$mbr" ] || die "$mbr is needed and not here; run: apt-get install -y --no-install-recommends syslinux-common"
}
mbr=/usr/lib/syslinux/mbr/mbr.bin

# package_tar NAME MMDEBSTRAP-ARGUMENT...: prints the path of a tar of unpacked
# packages. It is kept under a name that holds a digest of everything it is made
# from, so that the same inputs are fetched once and other inputs never meet it.
# Reads $suite, $mirror, $cache and $refresh.
package_tar() {
	name=$1
	shift
	digest=$(printf '%s\n' "$suite" "$mirror" "$@" | sha256sum | cut -c1-16)
	tar=$cache/$name-$suite-$digest.tar
	if [ -f "$tar" ] && [ -z "$refresh" ]; then
		say "packages: $tar (kept from an earlier run; --refresh fetches them again)"
		printf '%s\n' "$tar"
		return
	fi
	mkdir -p "$cache" || die "make the package cache $cache: name another with --cache"
	say "packages: fetching from ${mirror:-Debian} ($suite)"
	part=$(mktemp "$cache/.$name.XXXXXX") || die "write to the package cache $cache: name another with --cache"
	# shellcheck disable=SC2086 # without a mirror mmdebstrap takes Debian's own
	if ! mmdebstrap --quiet --format=tar "$@" "$suite" - $mirror >"$part"; then
		rm -f "$part"
		die "fetch packages of $suite from ${mirror:-Debian}: see above; is the mirror reachable, or another needed (--mirror)?"
	fi
	chmod 644 "$part"
	mv "$part" "$tar"
	printf '%s\n' "$tar"
}

# make_disk DISK BOOT-DIR BOOT-MIB KERNEL-ARGUMENTS [ROOT-FILE-SYSTEM]: writes a raw disk.
# The kernel does not test its timer: emulated on a busy host it may miss the few
# ticks of the test, takes the timer for broken and stands still for half a minute.
make_disk() {
	disk=$1 bootdir=$2 bootmib=$3 arguments=$4 rootfs=${5:-} rootmib=0
	[ -z "$rootfs" ] || rootmib=$((($(stat -c %s "$rootfs") + 1048575) / 1048576))
	cat >"$bootdir/syslinux.cfg" <<-CFG
		DEFAULT croft
		PROMPT 0
		TIMEOUT 0
		LABEL croft
		  KERNEL vmlinuz
		  INITRD initrd.img
		  APPEND no_timer_check $arguments
	CFG
	truncate -s "$((1 + bootmib + rootmib))M" "$disk"
	{
		printf 'label: dos\nstart=1MiB, size=%dMiB, type=6, bootable\n' "$bootmib"
		[ -z "$rootfs" ] || printf 'start=%dMiB, type=83\n' "$((1 + bootmib))"
	} | sfdisk -q "$disk" || die "partition $disk: see above"
	dd if="$mbr" of="$disk" bs=440 count=1 conv=notrunc status=none
	quietly mkfs.vfat -F 16 -n BOOT --offset 2048 "$disk" "$((bootmib * 1024))"
	quietly mcopy -i "$disk@@1M" "$bootdir"/* ::
	quietly syslinux --install --offset 1048576 "$disk"
	[ -z "$rootfs" ] || dd if="$rootfs" of="$disk" bs=1M seek="$((1 + bootmib))" conv=notrunc,sparse status=none
}

# systemd_boot BOOT-DIR LOADER PATH KERNEL-ARGUMENTS: adds systemd-boot, which UEFI finds under
# PATH and which starts the kernel at once.
systemd_boot() {
	mkdir -p "$1/${3%/*}" "$1/loader/entries"
	cp "$2" "$1/$3"
	printf 'timeout 0\n' >"$1/loader/loader.conf"
	printf 'title croft\nlinux /vmlinuz\ninitrd /initrd.img\noptions %s\n' "$4" >"$1/loader/entries/croft.conf"
}

# make_efi_disk DISK BOOT-DIR BOOT-MIB: writes a raw disk with one partition, which UEFI starts from.
make_efi_disk() {
	truncate -s "$((1 + $3))M" "$1"
	printf 'label: dos\nstart=1MiB, size=%dMiB, type=ef\n' "$3" | sfdisk -q "$1" || die "partition $1: see above"
	quietly mkfs.vfat -F 16 -n BOOT --offset 2048 "$1" "$(($3 * 1024))"
	quietly mcopy -s -i "$1@@1M" "$2"/* ::
}

# quietly COMMAND...: its words are shown only when it goes wrong.
quietly() {
	words=$("$@" 2>&1) || die "$1: $words"
}

# workdir: makes $work beside $output, so that the last step is a rename, and
# removes it however the program ends.
workdir() {
	outdir=$(dirname "$output")
	[ -d "$outdir" ] || die "write $output: there is no directory $outdir"
	work=$(mktemp -d "$outdir/.$prog.XXXXXX") || die "write to $outdir: see above"
	trap 'rm -rf "$work"' EXIT
	trap 'exit 129' HUP
	trap 'exit 130' INT
	trap 'exit 143' TERM
}

# finish RAW: compresses the disk into $output, which appears whole or not at all.
finish() {
	qemu-img convert -q -W -c -f raw -O qcow2 -o compression_type="$compress" "$1" "$work/image.qcow2" ||
		die "make $output: see above"
	chmod 644 "$work/image.qcow2"
	mv "$work/image.qcow2" "$output"
	say "$output: $(($(stat -c %s "$output") / 1048576)) MiB, virtual size $(($(stat -c %s "$1") / 1048576)) MiB"
}

# value FLAG VALUE: dies unless the flag has one.
value() { [ -n "${2:-}" ] || die "$1 needs a value; see $prog --help"; }
