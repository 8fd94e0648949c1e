# packages NAME...: installs those that the image does not have.
packages() {
	lacking=
	for package; do
		dpkg -s "$package" >/dev/null 2>&1 || lacking="$lacking $package"
	done
	[ -n "$lacking" ] || return 0
	[ -z "$apt_proxy" ] || echo "Acquire::http::Proxy \"$apt_proxy\";" >/etc/apt/apt.conf.d/90croft
	apt-get update -q
	# shellcheck disable=SC2086 # several words
	DEBIAN_FRONTEND=noninteractive apt-get install -yq --no-install-recommends $lacking
}
