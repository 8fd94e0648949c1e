package settings

import (
	"testing"
)

func TestEtcdIsOpenToOthersOnlyWhereThatIsMeant(t *testing.T) {
	for _, c := range []struct {
		name     string
		change   func(*Settings)
		accepted bool
	}{
		{"the loopback interface", func(*Settings) {}, true},
		{"every interface", func(s *Settings) { s.Etcd.Listen = "0.0.0.0:2379" }, false},
		{"TLS for everybody", func(s *Settings) {
			s.Etcd.Listen, s.Etcd.ListenCert, s.Etcd.ListenKey = "10.0.0.1:2379", "/cert", "/key"
		}, false},
		{"TLS for those with certificates", func(s *Settings) {
			s.Etcd.Listen, s.Etcd.ListenCert, s.Etcd.ListenKey, s.Etcd.ListenClientCA = "10.0.0.1:2379", "/cert",
				"/key", "/ca"
		}, true},
		{"said to be meant", func(s *Settings) { s.Etcd.Listen, s.Etcd.Insecure = "0.0.0.0:2379", true }, true},
		{"no address", func(s *Settings) { s.Etcd.Listen = "everywhere" }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Defaults()
			c.change(&s)
			if err := s.Servers(nil).CheckEtcd(); (err == nil) != c.accepted {
				t.Errorf("got %v, want it accepted: %v", err, c.accepted)
			}
		})
	}
}
