package trust

import (
	"cmp"
	"context"
	"crypto/subtle"
	"crypto/x509"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"croft"
	"croft/internal/connlimit"
	"croft/internal/httpapi"
	"croft/internal/wording"
	"croft/trust/pki"
)

// Admission decides which hosts belong to the cloud and were not forgotten. Its answers are at most a second old.
type Admission struct {
	Self  croft.HostID // this host, which always belongs
	Store Hosts
	Known Known
	Files pki.Files // trusted authorities; without a Dir no host has a certificate

	mu      sync.Mutex
	good    map[string]time.Time // hosts, and when they were last found in the store
	roots   []*x509.Certificate  // the authorities in Files as last read
	rootsAt time.Time
	renewed map[string]*rate.Limiter // by host
}

// admittedFor is how long a host stays admitted after it was found in the store.
const admittedFor = time.Second

// Limits on the renewals of one host: each certificate is signed, and recorded in etcd.
const (
	renewEvery  = 10 * time.Second
	renewAtOnce = 20
)

// stillTrusted refuses a certificate of an authority that was retired since the start of the connection. Unavailable: a
// new connection may succeed. A refusal is never based on cached authorities: the handshake may know a newer one.
func (a *Admission) stillTrusted(r *http.Request) error {
	if a.Files.Dir == "" {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.rootsAt) < admittedFor && pki.StillTrusted(r, a.roots) == nil {
		return nil
	}
	roots, err := a.Files.Authorities()
	if err != nil {
		return croft.Errorf(croft.Unavailable, "the trusted authorities cannot be read now: %w", err)
	}
	a.roots, a.rootsAt = roots, time.Now()
	return pki.StillTrusted(r, a.roots)
}

// mayRenew limits the rate of a host's renewals. Unavailable.
func (a *Admission) mayRenew(host string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.renewed[host] == nil {
		if a.renewed == nil {
			a.renewed = map[string]*rate.Limiter{}
		}
		a.renewed[host] = rate.NewLimiter(rate.Every(renewEvery), renewAtOnce)
	}
	if !a.renewed[host].Allow() {
		return croft.Errorf(croft.Unavailable,
			"host %s renews its certificates more often than every %s; ask again later", host,
			wording.Duration(renewEvery))
	}
	return nil
}

// check refuses hosts that were forgotten. NotFound.
func (a *Admission) check(ctx context.Context, id pki.Identity) error {
	if id.Kind != pki.Host && id.Kind != pki.Member || croft.HostID(id.ID) == a.Self {
		return nil
	}
	a.mu.Lock()
	at, known := a.good[id.ID]
	a.mu.Unlock()
	if known && time.Since(at) < admittedFor {
		return nil
	}
	err := a.Look(ctx, id)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		delete(a.good, id.ID)
		return err
	}
	if a.good == nil {
		a.good = map[string]time.Time{}
	}
	a.good[id.ID] = time.Now()
	return nil
}

// Look asks the store whether a host joined. The first host of a cloud never joined; it is known by its host
// record. NotFound: the host was forgotten.
func (a *Admission) Look(ctx context.Context, id pki.Identity) error {
	_, err := a.Store.Joined(ctx, croft.HostID(id.ID))
	if id.Kind != pki.Member || croft.KindOf(err) != croft.NotFound {
		return err
	}
	known, failed := a.Known.Hosts(ctx, croft.HostID(id.ID))
	if failed != nil || len(known) > 0 {
		return failed
	}
	return err
}

// Caller returns who makes a request, by their certificate. Invalid: none exists. NotFound: the host was forgotten.
// Unavailable: the certificate's authority was retired, or the store does not answer.
func (a *Admission) Caller(r *http.Request) (pki.Identity, error) {
	id, shown := pki.Caller(r)
	if !shown {
		return id, croft.Errorf(croft.Invalid, "show the certificate of a host of this cloud")
	}
	if err := cmp.Or(a.stillTrusted(r), a.check(r.Context(), id)); err != nil {
		return id, err
	}
	connlimit.Prove(r.Context())
	return id, nil
}

// admittedTime bounds the lookup of a host's record.
const admittedTime = 2 * time.Second

// Agent returns the host whose agent makes a request. The certificate is of a trusted authority, also on older
// connections, and the host was not forgotten.
func (a *Admission) Agent(r *http.Request) (croft.HostID, error) {
	ctx, cancel := context.WithTimeout(r.Context(), admittedTime)
	defer cancel()
	id, err := a.Caller(r.WithContext(ctx))
	switch {
	case err != nil:
		return croft.HostID(id.ID), err
	case id.Kind != pki.Host:
		return "", croft.Errorf(croft.Invalid, "the certificate identifies %s %s, and a host's is required", id.Kind,
			id.ID)
	}
	return croft.HostID(id.ID), nil
}

// Guard keeps forgotten hosts away from Placement. Over TLS the administrator's token, which all hosts share,
// is valid only together with a certificate.
func (a *Admission) Guard(token string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, shown := pki.Caller(r)
		switch {
		case r.TLS == nil: // on this machine, or a cloud without certificates
		case shown:
			if _, err := a.Caller(r); err != nil {
				w.Header().Set("Connection", "close") // a new connection shows the current certificate
				refuseOpenStack(w, croft.HTTPStatus(err), err.Error())
				return
			}
		case subtle.ConstantTimeCompare([]byte(r.Header.Get("X-Auth-Token")), []byte(token)) == 1:
			refuseOpenStack(w, http.StatusUnauthorized,
				"this token counts only with a certificate of this cloud: `croft ca issue --operator NAME` makes one")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// refuseOpenStack answers with an error in the format of OpenStack's APIs.
func refuseOpenStack(w http.ResponseWriter, status int, detail string) {
	if status == http.StatusNotFound {
		status = http.StatusForbidden // the host is unknown, not the resource that it asks for
	}
	httpapi.Answer(w, status, map[string]any{"errors": []map[string]any{
		{"status": status, "title": http.StatusText(status), "detail": detail},
	}})
}
