package direct

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"

	"croft/control/cloud"
	"croft/etcdstore"
	"croft/trust"
)

// health implements cloud.Etcd.
type health struct{ store *etcdstore.Store }

var _ cloud.Etcd = health{}

// Problems implements cloud.Etcd.
func (h health) Problems(ctx context.Context) []string {
	found := h.store.Cluster.Problems(ctx)
	text, err := h.store.Trust.Authority(ctx)
	if err != nil { // the cloud has none, or etcd's problems say why it cannot be read
		return found
	}
	if says := endingAuthority(text, time.Now()); says != "" {
		found = append(found, says)
	}
	return found
}

// rotatedBefore is how long before its end an authority should be rotated: all certificates have to be renewed by then.
const rotatedBefore = 90 * 24 * time.Hour

// endingAuthority describes that an authority ends soon; empty: it does not. While it is rotated there are two, and the
// later end counts.
func endingAuthority(text []byte, now time.Time) string {
	var end time.Time
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil && cert.NotAfter.After(end) {
			end = cert.NotAfter
		}
	}
	if end.IsZero() || end.Sub(now) > rotatedBefore {
		return ""
	}
	return fmt.Sprintf("the authority of the hosts' certificates %s: renew it with croft ca rotate on the host that has it",
		trust.Expiry(end))
}
