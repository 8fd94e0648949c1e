package settings

import (
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"croft"
	"croft/internal/endpoint"
	"croft/trust"
	"croft/trust/pki"
)

// joinPort is where hosts join beside an etcd that others reach.
const joinPort = "8777"

// OwnsEtcdTrust tells whether the embedded etcd listens for other machines with
// certificates of the cloud's own authority.
func (s *Settings) OwnsEtcdTrust() bool {
	return s.Beyond(s.Etcd.Listen) && s.Etcd.ListenCert == "" && s.Etcd.ListenKey == "" && s.Etcd.ListenClientCA == ""
}

// Beyond tells whether other machines reach an address, which then needs TLS.
func (s *Settings) Beyond(address string) bool {
	return !endpoint.IsLoopback(address) && !s.Etcd.Insecure
}

// JoinListen is where hosts join; empty: nowhere.
func (s *Settings) JoinListen() string {
	if s.Join.Listen != "" || !s.OwnsEtcdTrust() {
		return s.Join.Listen
	}
	host, _, _ := net.SplitHostPort(s.Etcd.Listen)
	return net.JoinHostPort(host, joinPort)
}

// Authorities lists the authorities that a host with these settings needs certificates of.
func (s *Settings) Authorities() []pki.Authority {
	var all []pki.Authority
	if s.OwnsEtcdTrust() {
		all = append(all, pki.Etcd)
	}
	if s.JoinListen() != "" || s.Beyond(s.API.Listen) || s.ServesPlacement() && s.Beyond(s.Placement.Listen) {
		all = append(all, pki.Hosts)
	}
	return all
}

// CheckTrust refuses a cloud whose hosts would reach nothing.
func (s *Settings) CheckTrust() error {
	if s.Trust == trust.Strict && s.JoinListen() == "" {
		return croft.Errorf(croft.Invalid, "trust is strict, so that hosts reach the gate alone: "+
			"say in join.listen where, such as an address of this machine and port %s", joinPort)
	}
	return nil
}

// OwnNames lists what others may call the servers of this host.
func (s *Settings) OwnNames() []string {
	names := append(endpoint.OwnAddresses(), "127.0.0.1", "::1", "localhost")
	for _, address := range []string{s.Etcd.Listen, s.Placement.Listen, s.JoinListen()} {
		if host, _, err := net.SplitHostPort(address); err == nil && host != "" && !net.ParseIP(host).IsUnspecified() {
			names = append(names, host)
		}
	}
	if name, err := os.Hostname(); err == nil {
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// CheckOwnEtcd is CheckEtcdListen for a cloud that may have an authority of its own.
func (s *Settings) CheckOwnEtcd() error {
	if s.OwnsEtcdTrust() {
		return nil
	}
	return s.CheckEtcdListen()
}

// CheckEtcdListen refuses an etcd that everybody who reaches it may read and write, unless
// etcd.insecure allows it.
func (s *Settings) CheckEtcdListen() error {
	if _, _, err := net.SplitHostPort(s.Etcd.Listen); err != nil {
		return croft.Errorf(croft.Invalid, "etcd.listen: %q is not IP:PORT", s.Etcd.Listen)
	}
	if !s.Beyond(s.Etcd.Listen) || s.Etcd.ListenCert != "" && s.Etcd.ListenClientCA != "" {
		return nil
	}
	return croft.Errorf(croft.Invalid,
		"etcd.listen: whoever reaches %s could read and change everything in this cloud; "+
			"set etcd.listen_cert, etcd.listen_key and etcd.listen_client_ca, so that clients have to show a certificate, or, in a network that only your hosts are in, --insecure", s.Etcd.Listen)
}

// ServesPlacement tells whether croft up runs its own Placement.
func (s *Settings) ServesPlacement() bool { return s.Placement.Cloud == "" }

// PeerURL is the address of the embedded etcd for other members; empty if it can have none.
func (s *Settings) PeerURL() string {
	switch {
	case s.PeerListen() == "":
		return ""
	case s.OwnsEtcdTrust() || s.Etcd.ListenCert != "" && s.Etcd.ListenClientCA != "":
		return "https://" + endpoint.Outside(s.PeerListen())
	}
	return "http://" + endpoint.Outside(s.PeerListen())
}

// PeerListen is where the embedded etcd listens for other members: the setting, else the
// port after that for clients if other machines reach it; empty if it can have no others.
func (s *Settings) PeerListen() string {
	if s.Etcd.PeerListen != "" || endpoint.IsLoopback(s.Etcd.Listen) {
		return s.Etcd.PeerListen
	}
	host, port, err := net.SplitHostPort(s.Etcd.Listen)
	n, notPort := strconv.ParseUint(port, 10, 16)
	if err != nil || notPort != nil || n == 0 {
		return ""
	}
	return net.JoinHostPort(host, strconv.FormatUint(n+1, 10))
}

// NoHypervisor is the setting hypervisor of a machine that runs shared services and no guests.
const NoHypervisor = "none"

// NeedsHypervisor refuses a process that cannot do without a hypervisor. Invalid.
func (s *Settings) NeedsHypervisor() error {
	if s.Hypervisor == NoHypervisor {
		return croft.Errorf(croft.Invalid,
			"hypervisor is none, which is for croft up where it runs the cloud's etcd: an agent needs libvirt, or sim")
	}
	return nil
}

// ServedNames lists the names by which this machine's servers may be called: its own and
// those in the settings.
func (s *Settings) ServedNames() []string {
	names := slices.Clone(s.ServerNames)
	if name, err := os.Hostname(); err == nil {
		names = append(names, name)
	}
	for _, at := range []string{s.Placement.Endpoint, s.Pool.Address} {
		for one := range strings.SplitSeq(at, ",") {
			if u, err := url.Parse(strings.TrimSpace(one)); err == nil && u.Hostname() != "" {
				names = append(names, u.Hostname())
			}
		}
	}
	for i, name := range names {
		names[i] = strings.TrimSuffix(strings.ToLower(name), ".")
	}
	return names
}
