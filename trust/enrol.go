package trust

import (
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"fmt"
	"net/http"

	"croft"
	"croft/trust/invitation"
	"croft/trust/pki"
)

// Enrolment is what a host received from a join server, not stored yet.
type Enrolment struct {
	Trust string           // what the host may reach
	Grant invitation.Grant // zero where trust is strict

	keys   map[pki.Authority]*ecdsa.PrivateKey
	issued map[pki.Authority]pki.Issued
}

// Enrol requests a host's certificates from a join server of the cloud. names are the addresses of a host that
// will serve etcd; none for other hosts. Nothing secret is sent before the server has proved to be of the
// authority that the token names, and neither the token's secret nor the private keys are ever sent.
func Enrol(ctx context.Context, token invitation.Token, host croft.HostID, names []string) (*Enrolment, error) {
	e := &Enrolment{keys: map[pki.Authority]*ecdsa.PrivateKey{}}
	order := joinOrder{Invitation: token.Name(), Host: host, Requests: map[pki.Authority][]byte{}, Names: names}
	for _, a := range pki.Authorities {
		var err error
		if e.keys[a], order.Requests[a], err = pki.Request(); err != nil {
			return nil, err
		}
	}
	answer, err := askToJoin(ctx, token, order)
	if err != nil {
		return nil, fmt.Errorf("join: %w", err)
	}
	e.Trust, e.issued = answer.Trust, answer.Issued
	if e.Trust != Strict {
		e.Grant, err = token.Open(answer.Sealed)
	}
	return e, err
}

// askToJoin exchanges an order for certificates.
func askToJoin(ctx context.Context, token invitation.Token, order joinOrder) (answer joinAnswer, err error) {
	signed, err := json.Marshal(order)
	if err != nil {
		return answer, err
	}
	client := NewClient(token.Servers, pki.Pinned(token.Pin, token.Partition, pki.Kinds(pki.Member)))
	err = client.call(ctx, http.MethodPost, "/v1/join", joinRequest{Signed: signed, Signature: token.Sign(signed)},
		&answer)
	return answer, err
}

// Keep stores the certificates in a state directory, and removes those that the host no longer gets.
func (e *Enrolment) Keep(stateDir string) error {
	for _, a := range pki.Authorities {
		files := Certificate(stateDir, a)
		issued, ok := e.issued[a]
		if !ok {
			if err := files.Forget(); err != nil {
				return err
			}
			continue
		}
		if err := files.Keep(e.keys[a], issued); err != nil {
			return err
		}
	}
	return nil
}
