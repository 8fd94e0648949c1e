package requests

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"croft"
	"croft/cluster"
	"croft/internal/delay"
)

// A server creates an account under a mark in the store. A server that finds the mark of another one waits for its
// account. If a server has seen a mark for markKept, measured by its own clock since it first saw the mark, the mark
// belongs to a server that has ended. The creation time in the mark proves nothing, because the clock of its maker may
// differ.
const (
	markKept = 3 * agentPatience
	markWait = 100 * time.Millisecond
)

// mark returns the name of a user's mark. No user name starts with a dot.
func mark(user string) string { return ".making." + user }

// Account returns the account of a user on a cluster, and creates it if necessary. Unavailable: the cluster is not
// ready, or its agent does not answer. Invalid: its appliance creates no accounts. Of several concurrent requests, one
// creates the account.
func (s *Service) Account(ctx context.Context, project croft.Project, idOrName, user string) (cluster.Login, error) {
	c, err := s.Find(ctx, project, idOrName)
	if err != nil {
		return cluster.Login{}, err
	}
	if login, err := s.stored(ctx, c, user); !errors.Is(err, croft.NotFound) {
		return login, err
	}
	agent, err := s.agent(ctx, c)
	if err != nil {
		return cluster.Login{}, err
	}
	for {
		if login, err := s.stored(ctx, c, user); !errors.Is(err, croft.NotFound) {
			return login, err
		}
		own := cluster.Account{Cluster: c.ID, User: mark(user), Username: rand.Text(), Created: time.Now().UTC()}
		err := s.c.Accounts.AddAccount(ctx, own)
		if err == nil {
			return s.make(ctx, c, agent, user, own)
		}
		if !errors.Is(err, croft.Conflict) {
			return cluster.Login{}, err
		}
		if err := s.awaitMark(ctx, c, user); err != nil {
			return cluster.Login{}, err
		}
	}
}

// agent returns the agent of a cluster that can create accounts now. Invalid. Unavailable.
func (s *Service) agent(ctx context.Context, c cluster.Cluster) (cluster.Agent, error) {
	a, err := s.c.Catalogue.Appliance(ctx, c.Appliance)
	if err != nil && !errors.Is(err, croft.NotFound) {
		return cluster.Agent{}, err
	}
	if a.Agent != nil {
		switch c.State {
		case cluster.Ready, cluster.Resizing, cluster.Degraded:
			return *a.Agent, nil
		}
		return cluster.Agent{}, cluster.Away("cluster %s is %s: it makes accounts once it is ready", c.Name, c.State)
	}
	return cluster.Agent{}, croft.Errorf(croft.Invalid, "appliance %s makes no accounts: it has no agent",
		cluster.ApplianceName(c.Appliance))
}

// stored returns an existing account. NotFound.
func (s *Service) stored(ctx context.Context, c cluster.Cluster, user string) (cluster.Login, error) {
	a, err := s.c.Accounts.Account(ctx, c.ID, user)
	if err != nil {
		return cluster.Login{}, err
	}
	if s.c.Vault == nil {
		return cluster.Login{}, noKey()
	}
	password, err := s.c.Vault.Open(a.Password, cluster.AboutAccount(s.c.Partition, c.ID, user))
	if err != nil {
		return cluster.Login{}, fmt.Errorf("open the password of %s on cluster %s: %w", user, c.Name, err)
	}
	return cluster.Login{Username: a.Username, Password: password}, nil
}

func noKey() error {
	return cluster.Away("accounts need a key to seal passwords with")
}

// make creates an account, stores it, and removes the user's mark own.
func (s *Service) make(ctx context.Context, c cluster.Cluster, agent cluster.Agent, user string,
	own cluster.Account) (login cluster.Login, err error) {
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), agentPatience)
		defer cancel()
		if unmark := s.c.Accounts.DropAccount(ctx, own); unmark != nil && !errors.Is(unmark, croft.NotFound) {
			s.c.Log.Warn("mark of an account stays for a while", "cluster", c.ID, "user", user, "err", unmark)
		}
	}()
	// Another request may have stored the account and removed its mark since this one looked.
	if login, err := s.stored(ctx, c, user); !errors.Is(err, croft.NotFound) {
		return login, err
	}
	if s.c.Vault == nil {
		return login, noKey()
	}
	// Check that a password can be sealed before the agent creates one, which could not be shown again otherwise.
	about := cluster.AboutAccount(s.c.Partition, c.ID, user)
	if _, err := s.c.Vault.Seal(cluster.NewSecret("trial"), about); err != nil {
		return login, err
	}
	if err := s.mayCall(ctx, c); err != nil {
		return login, err
	}
	if login, err = s.agents.login(ctx, c.MasterIP, agent); err != nil {
		return cluster.Login{}, err
	}
	sealed, err := s.c.Vault.Seal(login.Password, about)
	if err != nil {
		return cluster.Login{}, err
	}
	return s.keep(ctx, c, cluster.Account{Cluster: c.ID, User: user, Username: login.Username, Password: sealed,
		Created: time.Now().UTC()}, login)
}

// mayCall rejects the address of a master at another site, unless the rule for such addresses permits it: the template
// determines that address, and so a tenant does. Addresses of machines of this cloud come from their hosts.
func (s *Service) mayCall(ctx context.Context, c cluster.Cluster) error {
	all, err := s.c.Catalogue.Sites(ctx)
	if err != nil {
		return err
	}
	for _, site := range all {
		if site.Name == c.Site && (site.Type == cluster.Local || site.Type == cluster.Sim) {
			return nil
		}
	}
	ip, err := netip.ParseAddr(c.MasterIP)
	if err != nil {
		return cluster.Away("croft does not call the address of the master, %.80q", c.MasterIP)
	}
	if err := s.c.Outbound.Check(ip); err != nil {
		return croft.Errorf(croft.Denied, "make an account on cluster %s: %w", c.Name, err)
	}
	return nil
}

// keep stores an account. The account exists on the machines by now, so keep stores it even if the caller has gone, and
// repeats a write whose answer was lost.
func (s *Service) keep(ctx context.Context, c cluster.Cluster, a cluster.Account, login cluster.Login) (cluster.Login,
	error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), agentPatience)
	defer cancel()
	for try := 0; ; try++ {
		err := s.c.Accounts.AddAccount(ctx, a)
		if err == nil {
			return login, nil
		}
		if errors.Is(err, croft.Conflict) && try > 0 {
			return s.stored(ctx, c, a.User) // an earlier try stored it
		}
		if !lost(err) || try >= lostTries {
			return cluster.Login{}, fmt.Errorf("store the account of %s on cluster %s: %w", a.User, c.Name, err)
		}
		if err := pause(ctx, try); err != nil {
			return cluster.Login{}, err
		}
	}
}

// awaitMark waits a moment for another server that creates the account, and removes the mark of a server that has
// ended.
func (s *Service) awaitMark(ctx context.Context, c cluster.Cluster, user string) error {
	m, err := s.c.Accounts.Account(ctx, c.ID, mark(user))
	if errors.Is(err, croft.NotFound) {
		err = s.removing(ctx, c)
	}
	if err != nil {
		return err
	}
	if s.marks.Longer(sighted{m.Cluster, m.User, m.Username, m.Created}, markKept) {
		if err := s.c.Accounts.DropAccount(ctx, m); err != nil && !errors.Is(err, croft.NotFound) {
			return err
		}
		return nil
	}
	return delay.For(ctx, markWait)
}

// sighted identifies a mark.
type sighted struct {
	cluster    croft.ClusterID
	user, name string
	made       time.Time
}

// removing returns the error for an account on a cluster that is being removed, which the store has refused as well.
// Unavailable.
func (s *Service) removing(ctx context.Context, c cluster.Cluster) error {
	now, err := s.c.Records.Get(ctx, c.ID)
	if err == nil && (now.State == cluster.Deleting || now.State == cluster.Deleted) {
		return cluster.Away("cluster %s is %s: it makes no accounts", c.Name, now.State)
	}
	return err
}

// RemoveAccount forgets the account of a user. NotFound. The account on the machines stays there.
func (s *Service) RemoveAccount(ctx context.Context, project croft.Project, idOrName, user string) error {
	c, err := s.Find(ctx, project, idOrName)
	if err != nil {
		return err
	}
	return s.c.Accounts.RemoveAccount(ctx, c.ID, user)
}
