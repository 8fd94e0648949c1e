package main

import (
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"croft"
	"croft/compute"
	"croft/trust/invitation"
	"croft/trust/pki"
)

// enrol has a control process sign for this host, and notes what it got. Nothing that
// is secret is said before the other side has proven to be of the authority that the
// token names, and the token's secret and the keys that are made here never are.
func (j *membership) enrol(ctx context.Context, s hostSettings, token invitation.Token) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	id, err := compute.ReadHostID(s.StateDir, false)
	if errors.Is(err, croft.NotFound) {
		id, err = croft.NewHostID(), nil
	}
	if err != nil {
		return err
	}
	keys, order := map[pki.Authority]*ecdsa.PrivateKey{}, joinOrder{Invitation: token.Name(), Host: id, Requests: map[pki.Authority][]byte{}}
	for _, a := range pki.Authorities {
		if keys[a], order.Requests[a], err = pki.Request(); err != nil {
			return err
		}
	}
	if j.Etcd.Member {
		order.Names = s.ownNames()
	}
	answer, err := askToJoin(ctx, token, order)
	if err != nil {
		return fmt.Errorf("join: %w", err)
	}
	var grant invitation.Grant
	if answer.Trust != trustStrict {
		if grant, err = token.Open(answer.Sealed); err != nil {
			return err
		}
	}
	j.Control, j.Trust = token.Control, answer.Trust
	j.take(grant)
	if err := j.mayServe(s); err != nil {
		return err
	}
	return withStateDir(s.StateDir, func(dir *compute.StateDir) error { return j.keep(dir, id, keys, answer.Issued) })
}

// askToJoin exchanges an order for certificates.
func askToJoin(ctx context.Context, token invitation.Token, order joinOrder) (answer joinAnswer, err error) {
	signed, err := json.Marshal(order)
	if err != nil {
		return answer, err
	}
	control := newControlClient(token.Control, pki.Pinned(token.Pin, token.Partition, pki.Kinds(pki.Member)))
	err = control.call(ctx, http.MethodPost, "/v1/join", joinRequest{Signed: signed, Signature: token.Sign(signed)}, &answer)
	return answer, err
}

// keep stores what the host got; that it joined last, so that a crash leaves a host
// which may try again.
func (j *membership) keep(dir *compute.StateDir, id croft.HostID, keys map[pki.Authority]*ecdsa.PrivateKey, issued map[pki.Authority]pki.Issued) error {
	if err := dir.KeepHostID(id); err != nil {
		return err
	}
	for _, a := range pki.Authorities {
		i, ok := issued[a]
		if !ok { // it may have had one
			if err := certificates(dir.Path, a).Forget(); err != nil {
				return err
			}
			continue
		}
		if err := certificates(dir.Path, a).Keep(keys[a], i); err != nil {
			return err
		}
	}
	return j.write(dir.Path)
}
