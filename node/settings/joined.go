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

// Over returns the settings of a host that joined j. Its servers listen where the others
// reach them, unless the settings say where.
func Over(j *trust.Membership, s Settings) Settings {
	if j == nil {
		return s
	}
	s.Etcd.EtcdSettings, s.Others = JoinedEtcd(j, s), j.Etcd.Endpoints
	if j.IsStrict() {
		s.Others = j.Gates(s.StateDir)
	} else if j.HasCertificates() && endpoint.IsTLS(j.Placement.Endpoint) {
		s.Placement.TLS = trust.Certificate(s.StateDir, pki.Hosts).Client(j.Partition, pki.Kinds(pki.Member))
	}
	if j.Placement.Endpoint != "" { // else OpenStack's, for which each host has settings of its own
		s.Placement.Endpoint = j.Placement.Endpoint
		// who serves it may have been given another since
		if !j.Etcd.Member || s.Placement.Token == direct.DefaultToken {
			s.Placement.Token = j.Placement.Token
		}
	}
	here := AddressTowards(s.Others)
	byDefault := Defaults()
	towards(&s.API.Listen, byDefault.API.Listen, here)
	if j.Etcd.Member {
		s.Etcd.Insecure = s.Etcd.Insecure || j.Etcd.Insecure
		towards(&s.Etcd.Listen, byDefault.Etcd.Listen, here)
		towards(&s.Placement.Listen, byDefault.Placement.Listen, here)
	}
	return s
}

// towards moves an address that is still the default to another interface.
func towards(listen *string, byDefault string, here netip.Addr) {
	if *listen == byDefault {
		_, port, _ := net.SplitHostPort(byDefault)
		*listen = net.JoinHostPort(here.String(), port)
	}
}

// JoinedEtcd says how a host that joined j reaches etcd.
func JoinedEtcd(j *trust.Membership, s Settings) direct.EtcdSettings {
	e := s.Etcd.EtcdSettings
	e.Endpoints = j.Etcd.Endpoints
	if j.HasCertificates() && !j.IsStrict() {
		e.TLS = trust.Certificate(s.StateDir, pki.Etcd).Client(j.Partition, pki.Kinds(pki.Member))
	} else if e.CA == "" {
		e.CAPEM = j.Etcd.CA
	}
	return e
}

// AddressTowards returns the address of this machine on the route to the first endpoint
// that it has a route to.
func AddressTowards(endpoints []string) netip.Addr {
	for _, endpoint := range endpoints {
		u, err := url.Parse(endpoint)
		if err != nil {
			continue
		}
		c, err := net.Dial("udp", u.Host) // sends nothing: it only picks a route
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
