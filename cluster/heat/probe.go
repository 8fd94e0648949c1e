package heat

import (
	"context"
	"net/http"
	"strings"

	"github.com/gophercloud/gophercloud/v2"

	"croft"
	"croft/cluster"
)

// Probe implements cluster.Driver. It logs in, since a cached login does not prove that the password is still valid. If
// the credential is refused, it returns the facts that it read, and Denied.
func (d *Driver) Probe(ctx context.Context, at cluster.SiteAccess) (cluster.Probe, error) {
	version, err := d.version(ctx, at)
	if err != nil {
		return cluster.Probe{}, err
	}
	p := cluster.Probe{Version: version}
	if at.Secret.Empty() {
		return p, nil
	}
	s, err := d.sessions.renewed(ctx, at)
	if err != nil {
		return p, err
	}
	p.Accepted, p.Builds = true, s.service("orchestration") != nil
	if l, err := s.limits(ctx); err == nil {
		p.Free = l.free()
	}
	return p, nil
}

// version asks Keystone for its version, without a credential.
func (d *Driver) version(ctx context.Context, at cluster.SiteAccess) (string, error) {
	address, err := base(at.Site)
	if err != nil {
		return "", err
	}
	client, err := caller(at.Site)
	if err != nil {
		return "", err
	}
	defer client.CloseIdleConnections()
	s := &session{site: at.Site, timeout: d.config.Timeout}
	ctx, cancel := s.brief(ctx)
	defer cancel()
	var body struct {
		Version struct {
			ID string `json:"id"`
		} `json:"version"`
	}
	p := &gophercloud.ProviderClient{HTTPClient: *client}
	_, err = p.Request(ctx, http.MethodGet, address+"v3/", &gophercloud.RequestOpts{JSONResponse: &body})
	if err != nil {
		return "", s.explainLogin(err)
	}
	if !strings.HasPrefix(body.Version.ID, "v3") {
		return "", croft.Errorf(croft.Unavailable, "site %s: at %s is no Keystone of version 3", at.Site.Name,
			host(address))
	}
	return body.Version.ID, nil
}
