package direct

import (
	"cmp"
	"context"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/control/api"
	"croft/etcdstore"
	"croft/hosts"
	"croft/internal/endpoint"
	"croft/trust"
	"croft/trust/invitation"
	"croft/trust/pki"
)

// tokens implements api.Invitations.
type tokens struct {
	store    *etcdstore.Store
	fleet    *hosts.Fleet
	settings Settings
}

// Invite implements api.Invitations.
func (t tokens) Invite(ctx context.Context, i api.NewInvitation, life time.Duration) (api.Invitation, error) {
	var none api.Invitation
	servers, err := t.store.Trust.JoinServers(ctx)
	if err != nil {
		return none, err
	}
	var grant invitation.Grant
	if i.Member || !trust.AnyStrict(servers) {
		if grant, err = t.grant(ctx, i); err != nil {
			return none, err
		}
	}
	var host croft.HostID
	if i.Host != "" {
		found, err := t.fleet.Record(ctx, i.Host)
		if err != nil {
			return none, err
		}
		host = found.ID
	}
	token, err := t.leading(ctx, servers, grant.Endpoints, i.SameEtcd)
	if err != nil {
		return none, err
	}
	err = t.store.Trust.PutInvitation(ctx, trust.Invitation{
		Name: token.Name(), Note: i.Note, Host: host, Member: i.Member, Sealed: token.Seal(grant),
		Verifier: token.Verifier(),
	}, life)
	if err != nil {
		return none, err
	}
	now := time.Now().UTC()
	return api.Invitation{
		Name: token.Name(), Note: i.Note, Created: now, Expires: now.Add(life).Truncate(time.Second),
		Host: host, Member: i.Member, Token: token.String(),
	}, nil
}

// List implements api.Invitations.
func (t tokens) List(ctx context.Context) ([]api.Invitation, error) {
	all, err := t.store.Trust.Invitations(ctx)
	if err != nil {
		return nil, err
	}
	var valid []api.Invitation
	for _, i := range all {
		valid = append(valid, tokenOf(i))
	}
	return valid, nil
}

// Revoke implements api.Invitations.
func (t tokens) Revoke(ctx context.Context, name string) (api.Invitation, error) {
	i, err := t.store.Trust.RevokeInvitation(ctx, name)
	return tokenOf(i), err
}

func tokenOf(i trust.Invitation) api.Invitation {
	return api.Invitation{Name: i.Name, Note: i.Note, Created: i.Created, Expires: i.Expires, Host: i.Host,
		Member: i.Member}
}

// grant returns the grant for a host that reaches etcd and Placement itself: the addresses of all their servers.
func (t tokens) grant(ctx context.Context, i api.NewInvitation) (g invitation.Grant, err error) {
	if g.Endpoints, err = t.etcdForOthers(ctx, i.SameEtcd); err != nil {
		return g, err
	}
	serving, err := t.store.Cluster.Served(ctx)
	if err != nil {
		return g, err
	}
	if t.settings.Placement.Cloud == "" {
		g.Token = t.settings.Placement.Token
		one, err := t.placementForOthers(ctx, g.Endpoints[0], i.SamePlacement)
		if err != nil {
			return g, err
		}
		all := strings.Split(one, ",")
		for _, m := range serving {
			all = addReachable(all, m.Placement)
		}
		g.Placement = strings.Join(all, ",")
	}
	for _, m := range serving {
		g.Endpoints = addReachable(g.Endpoints, m.Clients...)
	}
	return g, nil
}

// addReachable adds the URLs that are new and reachable from other machines.
func addReachable(all []string, more ...string) []string {
	for _, one := range more {
		if one != "" && !slices.Contains(all, one) && (!endpoint.AnyLoopback([]string{one}) ||
			endpoint.AnyLoopback(all)) {
			all = append(all, one)
		}
	}
	return all
}

// leading returns a token with the addresses of the cloud's join servers, or of etcd if there is no join server. given
// says that loopback addresses are intended.
func (t tokens) leading(ctx context.Context, servers []trust.JoinServer, endpoints []string,
	given bool) (token invitation.JoinToken, err error) {
	token.Partition = t.store.Partition()
	unreached := ""
	for _, server := range servers {
		if server.Trust == "" {
			continue
		}
		for _, address := range server.Addresses {
			if endpoint.IsLoopback(address) && !given {
				unreached = address
				continue
			}
			token.Servers = append(token.Servers, address)
		}
	}
	switch {
	case len(token.Servers) > 0:
		trusted, err := t.store.Trust.Authority(ctx)
		if err != nil {
			return token, err
		}
		token.Pin, err = pki.FirstPin(trusted)
		return invitation.New(token), err
	case unreached != "":
		return token, croft.Errorf(croft.Invalid,
			"hosts join at %s, where only this machine reaches it: set join.listen to an address "+
				"of this machine, and start croft up again", unreached)
	}
	token.Endpoints = endpoints
	token.CA, err = t.settings.Etcd.Authority()
	return invitation.New(token), err
}

// etcdForOthers returns the addresses of etcd that other machines can reach: the given ones, or the ones that its
// members advertise.
func (t tokens) etcdForOthers(ctx context.Context, given bool) ([]string, error) {
	if given || !endpoint.AnyLoopback(t.settings.Etcd.Endpoints) {
		return t.settings.Etcd.Endpoints, nil
	}
	advertised, err := t.store.Cluster.Advertised(ctx)
	if err != nil {
		return nil, err
	}
	var reached []string
	for _, url := range advertised {
		if url = endpoint.Outward(url); !endpoint.AnyLoopback([]string{url}) {
			reached = append(reached, url)
		}
	}
	if len(reached) == 0 {
		return nil, croft.Errorf(croft.Invalid,
			"etcd listens where only this machine reaches it: set etcd.listen to an address of this machine that the "+
				"other hosts reach, placement.listen and api.listen too, and start croft up again; or give --etcd")
	}
	return reached, nil
}

// placementForOthers returns the address of Placement that other machines can reach.
func (t tokens) placementForOthers(ctx context.Context, etcd string, given bool) (string, error) {
	used := cmp.Or(t.settings.Placement.Endpoint, DefaultPlacement)
	if given || !endpoint.AnyLoopback(strings.Split(used, ",")) {
		return used, nil
	}
	here, err := url.Parse(used)
	if err != nil {
		return "", croft.Errorf(croft.Invalid, "placement.endpoint: %w", err)
	}
	beside, err := url.Parse(etcd)
	if err != nil {
		return "", croft.Errorf(croft.Invalid, "etcd.endpoints: %w", err)
	}
	here.Host = net.JoinHostPort(beside.Hostname(), here.Port())
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", here.Host)
	if err != nil {
		return "", croft.Errorf(croft.Invalid,
			"Placement listens where only this machine reaches it, and not at %s: set placement.listen to an address "+
				"of this machine and placement.token to a word of your own, and start croft up again; or give --placement",
			here.Host)
	}
	_ = conn.Close()
	return here.String(), nil
}
