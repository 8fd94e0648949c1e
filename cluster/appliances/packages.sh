# lacks PACKAGE...: whether the image has not all of these; $lacking is which.
lacks() {
	lacking=
	for package; do
		dpkg-query --show --showformat='${db:Status-Abbrev}' "$package" 2>/dev/null | grep -q '^ii' ||
			lacking="$lacking $package"
	done
	[ -n "$lacking" ]
}
# packages PACKAGE...: installs those that the image does not have.
packages() {
	lacks "$@" || return 0
	[ -z "$apt_proxy" ] || echo "Acquire::http::Proxy \"$apt_proxy\";" >/etc/apt/apt.conf.d/90croft
	apt-get update -q
	# shellcheck disable=SC2086 # several words
	DEBIAN_FRONTEND=noninteractive apt-get install -yq --no-install-recommends $lacking
}
# start_now_and_at_boot UNIT...: by hand, since systemctl enable has systemd read all
# units again, which takes an emulated guest ten seconds each time.
start_now_and_at_boot() {
	mkdir -p /etc/systemd/system/multi-user.target.wants
	for unit; do
		path=/etc/systemd/system/$unit
		[ -e "$path" ] || path=/lib/systemd/system/$unit
		ln -sfn "$path" "/etc/systemd/system/multi-user.target.wants/$unit"
		systemctl restart "$unit"
	done
}
