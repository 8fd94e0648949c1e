package settings

import (
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"croft"
	"croft/control/cloud/direct"
	"croft/internal/endpoint"
	"croft/trust"
	"croft/trust/pki"
)

// joinPort is the port of the join server if other machines reach etcd.
const joinPort = "8777"

// Servers holds the addresses, IP:PORT, where the servers of a host listen, and the certificates that they need.
type Servers struct {
	API, Etcd, Placement, CloudAPI string

	insecure bool // no server needs certificates
	plain    bool // only servers for other machines need certificates
	set      *Settings
}

// Servers returns where the servers of a host that joined j, if not nil, listen: as configured, else at its
// address on the route to the joined cloud.
func (s *Settings) Servers(j *trust.Membership) Servers {
	v := Servers{
		API: s.API.Listen, Etcd: s.Etcd.Listen, Placement: s.Placement.Listen, CloudAPI: s.CloudAPI.Listen,
		insecure: s.Etcd.Insecure, set: s,
	}
	if j == nil {
		return v
	}
	here := AddressTowards(j.Endpoints(s.StateDir))
	byDefault := Defaults()
	towards(&v.API, byDefault.API.Listen, here)
	if j.Etcd.Member {
		v.insecure = v.insecure || j.Etcd.Insecure
		towards(&v.Etcd, byDefault.Etcd.Listen, here)
		towards(&v.Placement, byDefault.Placement.Listen, here)
	}
	return v
}

// towards changes an address on the default interface to one on another interface.
func towards(listen *string, byDefault string, here netip.Addr) {
	if *listen == byDefault {
		_, port, _ := net.SplitHostPort(byDefault)
		*listen = net.JoinHostPort(here.String(), port)
	}
}

// WithoutAuthority returns the addresses for a process without an authority: on loopback it serves in plain text.
func (v Servers) WithoutAuthority() Servers {
	v.plain = true
	return v
}

// Socket returns the path of the socket of the API for the operators of this machine; empty: no socket.
func (v Servers) Socket() string {
	if v.set.CloudAPI.Socket == "" && v.set.StateDir == direct.MachineDir && os.Geteuid() == 0 {
		return direct.MachineSocket
	}
	return v.set.CloudAPI.Socket
}

// Secured reports whether etcd or Placement at an address requires certificates. It requires them also on loopback,
// because of other users of the machine.
func (v Servers) Secured(address string) bool {
	return !v.insecure && !(v.plain && endpoint.IsLoopback(address))
}

// OwnsEtcdTrust reports whether the embedded etcd requires certificates of the cloud's own authority.
func (v Servers) OwnsEtcdTrust() bool {
	set := v.set.Etcd
	return v.Secured(v.Etcd) && set.ListenCert == "" && set.ListenKey == "" && set.ListenClientCA == ""
}

// Beyond reports whether other machines reach an address, which then needs TLS.
func (v Servers) Beyond(address string) bool {
	return !endpoint.IsLoopback(address) && !v.insecure
}

// Join returns the address of the join server; empty: no join server.
func (v Servers) Join() string {
	if v.set.Join.Listen != "" || !v.OwnsEtcdTrust() || endpoint.IsLoopback(v.Etcd) {
		return v.set.Join.Listen
	}
	host, _, _ := net.SplitHostPort(v.Etcd)
	return net.JoinHostPort(host, joinPort)
}

// Authorities lists the authorities whose certificates the servers need.
func (v Servers) Authorities() []pki.Authority {
	var all []pki.Authority
	if v.OwnsEtcdTrust() {
		all = append(all, pki.Etcd)
	}
	tenants := v.CloudAPI != "" && v.set.CloudAPI.Cert == "" && v.Beyond(v.CloudAPI)
	if v.Join() != "" || v.Beyond(v.API) || tenants || v.set.ServesPlacement() && v.Secured(v.Placement) {
		all = append(all, pki.Hosts)
	}
	return all
}

// CheckTrust refuses a cloud that hosts could join but not reach.
func (v Servers) CheckTrust() error {
	if v.set.Trust == trust.Strict && v.Join() == "" {
		return croft.Errorf(croft.Invalid, "trust is strict, so that hosts reach the gate alone: "+
			"say in join.listen where, such as an address of this machine and port %s", joinPort)
	}
	return nil
}

// Names lists the names and addresses of this host's servers for their certificates.
func (v Servers) Names() []string {
	names := append(endpoint.OwnAddresses(), "127.0.0.1", "::1", "localhost")
	for _, address := range []string{v.Etcd, v.Placement, v.Join(), v.CloudAPI} {
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

// CheckOwnEtcd is CheckEtcd for a cloud that may have its own authority.
func (v Servers) CheckOwnEtcd() error {
	if v.OwnsEtcdTrust() {
		return nil
	}
	return v.CheckEtcd()
}

// CheckEtcd refuses an etcd that every machine with access to its address may read and write, unless
// etcd.insecure permits it.
func (v Servers) CheckEtcd() error {
	if _, _, err := net.SplitHostPort(v.Etcd); err != nil {
		return croft.Errorf(croft.Invalid, "etcd.listen: %q is not IP:PORT", v.Etcd)
	}
	if !v.Beyond(v.Etcd) || v.ownEtcdCertificates() {
		return nil
	}
	return croft.Errorf(croft.Invalid,
		"etcd.listen: whoever reaches %s could read and change everything in this cloud; "+
			"set etcd.listen_cert, etcd.listen_key and etcd.listen_client_ca, so that clients have to show a certificate, or, in a network that only your hosts are in, --insecure", v.Etcd)
}

// ownEtcdCertificates reports whether the settings name certificates for etcd, and the authority of its clients.
func (v Servers) ownEtcdCertificates() bool {
	return v.set.Etcd.ListenCert != "" && v.set.Etcd.ListenClientCA != ""
}

// PeerURL returns the address of the embedded etcd for other members; empty: it can have none.
func (v Servers) PeerURL() string {
	switch {
	case v.Peer() == "":
		return ""
	case v.OwnsEtcdTrust() || v.ownEtcdCertificates():
		return "https://" + endpoint.Outside(v.Peer())
	}
	return "http://" + endpoint.Outside(v.Peer())
}

// Peer returns the address where the embedded etcd listens for other members: the setting, else the port after that for
// clients if other machines reach it; empty: it can have no other members.
func (v Servers) Peer() string {
	if v.set.Etcd.PeerListen != "" || endpoint.IsLoopback(v.Etcd) {
		return v.set.Etcd.PeerListen
	}
	host, port, err := net.SplitHostPort(v.Etcd)
	n, notPort := strconv.ParseUint(port, 10, 16)
	if err != nil || notPort != nil || n == 0 {
		return ""
	}
	return net.JoinHostPort(host, strconv.FormatUint(n+1, 10))
}

// ServesPlacement reports whether croft up runs its own Placement.
func (s *Settings) ServesPlacement() bool { return s.Placement.Cloud == "" }

// NoHypervisor is the value of the setting hypervisor on a machine that runs shared services and no guests.
const NoHypervisor = "none"

// NeedsHypervisor refuses settings without a hypervisor, for processes that need one. Invalid.
func (s *Settings) NeedsHypervisor() error {
	if s.Hypervisor == NoHypervisor {
		return croft.Errorf(croft.Invalid,
			"hypervisor is none, which is only for a croft up that runs the cloud's etcd: an agent needs libvirt, "+
				"or sim")
	}
	return nil
}

// ServedNames lists the names of this machine's servers: its own, those in the settings, and the name of its Placement.
func (s *Settings) ServedNames(placement string) []string {
	names := slices.Clone(s.ServerNames)
	if name, err := os.Hostname(); err == nil {
		names = append(names, name)
	}
	for _, at := range []string{placement, s.Pool.Address, s.CloudAPI.Address} {
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

// Keystone configures which tokens the embedded Placement accepts besides the administrator's.
type Keystone struct {
	Cloud          string   `yaml:"cloud"`
	Only           bool     `yaml:"only"`
	ReaderProjects []string `yaml:"reader_projects"`
}

func (s Keystone) validate() error {
	if s.Cloud == "" && (s.Only || len(s.ReaderProjects) > 0) {
		return croft.Errorf(croft.Invalid,
			"placement.keystone.only and reader_projects are about the tokens of a Keystone: name it in placement.keystone.cloud")
	}
	return nil
}

// Reach describes how a process reaches its cloud: with configured addresses, with those learned when the host joined,
// or with its own address for services that it runs itself.
type Reach struct {
	Joined    *trust.Membership // nil: the host did not join, or is configured to use another cloud
	Etcd      direct.EtcdSettings
	Placement direct.PlacementSettings
}

// FindReach returns how to reach the cloud of this host: the one that it joined, or else the one that was created here,
// at the address where that listens.
func (s *Settings) FindReach() (Reach, error) {
	of, err := trust.ReadMembership(s.StateDir)
	r := s.reachAsSetHere(of)
	if err == nil && of == nil {
		err = direct.AddLocal(s.StateDir, &r.Etcd, &r.Placement)
	}
	r.Etcd.SetDefault()
	// The settings may have changed since the note was written.
	r.Etcd.SealKeys, r.Etcd.FenceFile = s.Clusters.CredentialKeyFile, s.Host.Fence
	return r, err
}

// Reach returns how a host that joined j, if not nil, reaches the cloud when it starts. Without any setting its etcd is
// the one that ETCDCTL_ENDPOINTS names, or this machine's.
func (s *Settings) Reach(j *trust.Membership) Reach {
	r := s.reachAsSetHere(j)
	r.Etcd.SetDefault()
	return r
}

// reachAsSetHere is ReachAsSet with the etcd of ETCDCTL_ENDPOINTS if no setting names one.
func (s *Settings) reachAsSetHere(j *trust.Membership) Reach {
	r := s.ReachAsSet(j)
	if len(r.Etcd.Endpoints) == 0 {
		r.Etcd.Endpoints = direct.EndpointsFromEnv(os.Getenv)
	}
	return r
}

// ReachAsSet is Reach without a default: if neither the settings nor a membership say where etcd is, Etcd.Endpoints is
// empty.
func (s *Settings) ReachAsSet(j *trust.Membership) Reach {
	r := Reach{Joined: j, Etcd: s.Etcd.EtcdSettings, Placement: s.Placement.PlacementSettings}
	r.Etcd.SealKeys, r.Etcd.FenceFile = s.Clusters.CredentialKeyFile, s.Host.Fence
	if j == nil {
		return r
	}
	r.Etcd.Endpoints = j.Etcd.Endpoints
	if j.HasCertificates() && !j.IsStrict() {
		r.Etcd.TLS = trust.Certificate(s.StateDir, pki.Etcd).Client(j.Partition, pki.Kinds(pki.Member))
		if endpoint.IsTLS(j.Placement.Endpoint) {
			r.Placement.TLS = trust.Certificate(s.StateDir, pki.Hosts).Client(j.Partition, pki.Kinds(pki.Member))
		}
	} else if r.Etcd.CA == "" {
		r.Etcd.CAPEM = j.Etcd.CA
	}
	if j.Placement.Endpoint != "" { // otherwise OpenStack's, for which each host has its own settings
		r.Placement.Endpoint = j.Placement.Endpoint
		// The token of a host that serves Placement may have changed since.
		if !j.Etcd.Member || s.Placement.Token == direct.DefaultToken {
			r.Placement.Token = j.Placement.Token
		}
	}
	return r
}

// AddressTowards returns the address of this machine on the route to the first endpoint for which there is one.
func AddressTowards(endpoints []string) netip.Addr {
	for _, endpoint := range endpoints {
		u, err := url.Parse(endpoint)
		if err != nil {
			continue
		}
		c, err := net.Dial("udp", u.Host) // sends nothing, only picks a route
		if err != nil {
			continue
		}
		local, err := netip.ParseAddrPort(c.LocalAddr().String())
		_ = c.Close()
		if err == nil {
			return local.Addr().Unmap()
		}
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}
