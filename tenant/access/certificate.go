package access

import (
	"context"
	"net/http"

	"croft"
	"croft/trust/pki"
)

// Certificates authenticates operators and hosts by the certificate of their TLS connection, which the server verifies
// in the handshake (pki.Files.Server). An operator becomes a partition-admin; a host becomes an agent, even if it
// serves etcd.
type Certificates struct {
	Partition croft.PartitionID

	// Admit decides whether a certificate that was valid in the handshake is still valid. NotFound: its host was
	// forgotten. Unavailable: its authority was replaced, or the state is unknown now. Required.
	Admit func(*http.Request) (pki.Identity, error)
}

var _ Authenticator = Certificates{}

// Authenticate implements Authenticator.
func (c Certificates) Authenticate(_ context.Context, r *http.Request) (Caller, bool, error) {
	if _, shown := pki.Caller(r); !shown {
		return Caller{}, false, nil
	}
	id, err := c.Admit(r)
	switch {
	case croft.KindOf(err) == croft.Unavailable:
		return Caller{}, false, err
	case err != nil:
		return Caller{}, false, croft.Errorf(croft.Denied, "the certificate of this connection counts no more: %s",
			err.Error())
	case id.Partition != c.Partition:
		return Caller{}, false, croft.Errorf(croft.Denied, "the certificate is of another cloud (%s)", id.Partition)
	}
	caller := Caller{Partition: c.Partition, User: id.ID, Via: "certificate of " + string(id.Kind) + " " + id.ID}
	switch id.Kind {
	case pki.Operator:
		caller.Roles = []Role{PartitionAdmin}
	case pki.Host, pki.Member:
		caller.Roles, caller.Host = []Role{Agent}, croft.HostID(id.ID)
	default:
		return Caller{}, false, croft.Errorf(croft.Denied, "the certificate is of a kind that calls no API: %s",
			id.Kind)
	}
	return caller, true, nil
}
