package settings

import (
	"net"
	"net/netip"
	"net/url"

	"croft/cloud/direct"
	"croft/internal/endpoint"
	"croft/trust"
	"croft/trust/pki"
)

// Reach is how a process reaches its cloud: as configured, as the host learned when it joined, or at its own
// address for what it serves itself.
type Reach struct {
	Joined    *trust.Membership // nil: the host did not join, or is configured to use another cloud
	Etcd      direct.EtcdSettings
	Placement direct.PlacementSettings
}

// FindReach returns how to reach the cloud of this host: the one that it joined, or else the one that began here,
// wherever that listens.
func (s *Settings) FindReach() (Reach, error) {
	of, err := trust.ReadMembership(s.StateDir)
	r := s.Reach(of)
	if err == nil && of == nil {
		err = direct.AddLocal(s.StateDir, &r.Etcd, &r.Placement)
	}
	return r, err
}

// Reach returns how a host that joined j, if not nil, reaches the cloud when it starts.
func (s *Settings) Reach(j *trust.Membership) Reach {
	r := Reach{Joined: j, Etcd: s.Etcd.EtcdSettings, Placement: s.Placement.PlacementSettings}
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
