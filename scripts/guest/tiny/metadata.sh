# shellcheck shell=sh
# Where the guest learns who it is; sourced by rc. Each source fills $md with the
# files id, name, keys (lines of authorized_keys), user (the user-data) and, where
# there is one, hostkey (private, of OpenSSH's form), and
# sets $source to words for the console. Needs $url and load from rc.
# shellcheck disable=SC2154,SC2034 # url comes from rc, source goes there

md=/run/md

# get PATH FILE: fetches from the metadata server into $md/FILE; no such file, no success.
get() { timeout 5 wget -q -O "$md/$2" "$url/$1" 2>/dev/null || { rm -f "$md/$2" && false; }; }

# report FORM: tells the metadata server how the set-up ended.
report() { timeout 5 wget -q -O /dev/null --post-data "$1" "$url/croft/v1/phone-home" 2>/dev/null; }

# public_keys FILE: every public key in a text of any form, one per line.
public_keys() {
	sed 's/[]",[]/\n/g' "$1" | sed "s/^[ '-]*//; s/[' ]*\$//" |
		grep -E '^(ssh-|ecdsa-|sk-)[^ ]+ AAAA' || true
}

# openstack META_DATA.JSON
openstack() {
	awk -f /lib/croft/json.awk "$1" >"$md/flat" || return 1
	sed -n 's/^\.uuid\t//p' "$md/flat" >"$md/id"
	sed -n 's/^\.hostname\t//p' "$md/flat" >"$md/name"
	sed -n 's/^\.public_keys\.[^\t]*\t//p' "$md/flat" >"$md/keys"
	[ -s "$md/id" ]
}

# nocloud META-DATA: the two scalars and the keys of what is usually YAML.
nocloud() {
	sed -n "s/^instance-id: *[\"']\{0,1\}\([^\"' ]*\).*/\1/p" "$1" >"$md/id"
	sed -n "s/^local-hostname: *[\"']\{0,1\}\([^\"' ]*\).*/\1/p" "$1" >"$md/name"
	public_keys "$1" >"$md/keys"
	[ -s "$md/id" ]
}

# from_disk: a file system labelled cidata (NoCloud) or config-2 (OpenStack).
from_disk() {
	for label in cidata CIDATA config-2 CONFIG-2; do
		device=$(findfs "LABEL=$label" 2>/dev/null) && break
	done
	[ -n "$device" ] || return 1
	load files
	mount -o ro "$device" /mnt || return 1
	cp /mnt/croft/host-key "$md/hostkey" 2>/dev/null
	if [ -e /mnt/openstack/latest/meta_data.json ]; then
		source="config-2 disk $device"
		cp /mnt/openstack/latest/user_data "$md/user" 2>/dev/null
		openstack /mnt/openstack/latest/meta_data.json
	else
		source="NoCloud disk $device"
		cp /mnt/user-data "$md/user" 2>/dev/null
		nocloud /mnt/meta-data
	fi
	understood=$?
	umount /mnt
	return "$understood"
}

# from_server: the OpenStack tree, else the EC2 tree.
from_server() {
	if get openstack/latest/meta_data.json meta; then
		source="OpenStack tree at $url"
		openstack "$md/meta" || return 1
		get openstack/latest/ list || return 1
		if grep -qx user_data "$md/list"; then get openstack/latest/user_data user || return 1; fi
	elif get 2009-04-04/meta-data/instance-id id; then
		source="EC2 tree at $url"
		get 2009-04-04/meta-data/local-hostname name
		get 2009-04-04/user-data user
		: >"$md/keys"
		get 2009-04-04/meta-data/public-keys/ names || : >"$md/names"
		sed 's/=.*//' "$md/names" | while read -r key || [ -n "$key" ]; do
			get "2009-04-04/meta-data/public-keys/$key/openssh-key" key &&
				{ cat "$md/key" && echo; } >>"$md/keys"
		done
		sed -i '/^$/d' "$md/keys"
	else
		return 1
	fi
	get croft/v1/host-key hostkey || true
}
