package registry

import (
	"cmp"
	"context"
	"time"

	"croft"
	"croft/cluster"
)

// Credentials manages the credentials with which the cloud acts for users at sites. Their secrets can be written but
// never read. Each is named by its ID, or by its name for the user in the project.
type Credentials struct{ *Registry }

// Credentials returns the manager of credentials.
func (r *Registry) Credentials() Credentials { return Credentials{r} }

// maxCredentials is the maximum number of credentials of a user in a project.
const maxCredentials = 100

// shown returns a credential without its secret, for responses.
func shown(c cluster.Credential) cluster.Credential {
	c.Secret = nil
	return c
}

// List returns the credentials of a user in a project; with both empty, all credentials.
func (r Credentials) List(ctx context.Context, project croft.Project, user string) ([]cluster.Credential, error) {
	all, err := r.Catalogue.Credentials(ctx, project, user)
	for i := range all {
		all[i] = shown(all[i])
	}
	return all, err
}

// Find returns a credential. NotFound.
func (r Credentials) Find(ctx context.Context, project croft.Project, user, idOrName string) (cluster.Credential,
	error) {
	c, err := r.find(ctx, project, user, idOrName)
	return shown(c), err
}

// find returns a credential with its sealed secret.
func (r *Registry) find(ctx context.Context, project croft.Project, user, idOrName string) (cluster.Credential, error) {
	all, err := r.Catalogue.Credentials(ctx, project, user)
	if err != nil {
		return cluster.Credential{}, err
	}
	for _, c := range all {
		if string(c.ID) == idOrName {
			return c, nil
		}
	}
	if project == "" && user == "" { // names are not unique across projects and users
		return cluster.Credential{}, croft.Errorf(croft.NotFound, "there is no credential with ID %.80q", idOrName)
	}
	return pick("credential", idOrName, all, func(c cluster.Credential) string { return c.Name })
}

// Create stores a credential that the site accepts. Invalid: the site refuses it. Unavailable.
func (r Credentials) Create(ctx context.Context, n cluster.NewCredential) (cluster.Credential, error) {
	c := n.Credential
	at, err := r.site(ctx, c.Site)
	if err != nil {
		return shown(c), err
	}
	if err := cmp.Or(checkCredential(&c, at), checkSecret(n.Plain)); err != nil {
		return shown(c), err
	}
	if err := r.isFree(ctx, c); err != nil {
		return shown(c), err
	}
	c.ID, c.Created, c.Generation, c.LastError = cluster.NewCredentialID(), now(), 0, ""
	c.Updated, c.VerifiedAt = c.Created, time.Time{}
	if c.Secret, err = r.seal(c, n.Plain); err != nil {
		return shown(c), err
	}
	if !n.Unverified {
		if err := r.verify(ctx, at, c, n.Plain); err != nil {
			return shown(c), err
		}
		c.VerifiedAt = c.Created
	}
	c.SiteCreated = at.CreateRevision // the site that the user saw, and that accepted the secret
	c, err = r.Catalogue.PutCredential(ctx, c)
	return shown(c), err
}

// isFree rejects a name that is taken, before the site is asked, and a credential beyond maxCredentials. Conflict.
// Invalid.
func (r Credentials) isFree(ctx context.Context, c cluster.Credential) error {
	all, err := r.Catalogue.Credentials(ctx, c.Project, c.User)
	if err != nil {
		return err
	}
	for _, other := range all {
		if other.Name == c.Name {
			return croft.Errorf(croft.Conflict, "%s has a credential %s in project %s already: choose another name", c.User,
				c.Name, c.Project)
		}
	}
	if len(all) >= maxCredentials {
		return croft.Errorf(croft.Invalid, "%s has %d credentials in project %s, and may not have more: remove one", c.User,
			len(all), c.Project)
	}
	return nil
}

func (r *Registry) seal(c cluster.Credential, s cluster.Secret) (cluster.Sealed, error) {
	if r.Vault == nil {
		return nil, cluster.Away("no key is configured to seal secrets with: see credential_key_file")
	}
	return r.Vault.Seal(s, cluster.AboutCredential(r.Partition, c))
}

func (r *Registry) open(c cluster.Credential) (cluster.Secret, error) {
	if r.Vault == nil {
		return cluster.Secret{}, cluster.Away("no key is configured to open secrets with: see " +
			"credential_key_file")
	}
	s, err := r.Vault.Open(c.Secret, cluster.AboutCredential(r.Partition, c))
	if err != nil {
		return s, croft.Errorf(croft.KindOf(err), "credential %s: %w", c.Name, err)
	}
	return s, nil
}

// verify logs in at a site. Invalid: the site refuses. Unavailable: it does not answer. Neither error contains the
// secret.
func (r *Registry) verify(ctx context.Context, at cluster.Site, c cluster.Credential, s cluster.Secret) error {
	driver, err := r.driver(at)
	if err != nil {
		return err
	}
	asking, end := context.WithTimeout(ctx, r.Timeout)
	defer end()
	probe, err := driver.Probe(asking, cluster.SiteAccess{Site: at, Credential: shown(c), Secret: s})
	if err := ctx.Err(); err != nil {
		return err
	}
	switch kind := croft.KindOf(err); {
	case err == nil && probe.Accepted:
		r.NoteHealth(at.Name, nil)
		return nil
	case err == nil:
		return refused(at.Name, "it gives no reason")
	case kind == croft.Denied || kind == croft.Invalid:
		return refused(at.Name, clean(err, s))
	}
	why := clean(err, s)
	r.NoteHealth(at.Name, croft.Errorf(croft.Unavailable, "%s", why))
	return cluster.Away("site %s cannot be asked whether it accepts the credential: %s; try again, or "+
		"store it unverified", at.Name, why)
}

// Change changes a credential if it has the given generation; nil accepts any. A change that the site refuses is not
// stored.
func (r Credentials) Change(ctx context.Context, project croft.Project, user, idOrName string,
	c cluster.CredentialChange, generation *int64) (cluster.Credential, error) {
	first, err := r.find(ctx, project, user, idOrName)
	if err != nil {
		return shown(first), err
	}
	at, err := r.site(ctx, first.Site)
	if err != nil {
		return shown(first), err
	}
	next, err := amend(ctx, generation, func(ctx context.Context) (cluster.Credential, int64, error) {
		now, err := r.Catalogue.Credential(ctx, first.ID)
		return now, now.Generation, err
	}, func(v *cluster.Credential) error { return r.change(ctx, at, v, c) }, r.Catalogue.PutCredential)
	return shown(next), err
}

// change changes a credential, and verifies the changes at the site.
func (r Credentials) change(ctx context.Context, at cluster.Site, v *cluster.Credential,
	c cluster.CredentialChange) error {
	set(&v.Name, c.Name)
	set(&v.Username, c.Username)
	set(&v.UserDomain, c.UserDomain)
	set(&v.ProjectName, c.ProjectName)
	set(&v.ProjectID, c.ProjectID)
	set(&v.ProjectDomain, c.ProjectDomain)
	if err := checkCredential(v, at); err != nil {
		return err
	}
	v.Updated = now()
	login := c.Plain != nil || c.Username != nil || c.UserDomain != nil || c.ProjectName != nil || c.ProjectID != nil ||
		c.ProjectDomain != nil
	if !login {
		return nil
	}
	secret, err := r.secretOf(v, c.Plain)
	if err != nil {
		return err
	}
	v.LastError, v.VerifiedAt = "", time.Time{}
	if c.Unverified {
		return nil
	}
	v.VerifiedAt = v.Updated
	return r.verify(ctx, at, *v, secret)
}

// secretOf seals a new secret, or opens the stored one.
func (r Credentials) secretOf(v *cluster.Credential, plain *cluster.Secret) (cluster.Secret, error) {
	if plain == nil {
		return r.open(*v)
	}
	if err := checkSecret(*plain); err != nil {
		return *plain, err
	}
	sealed, err := r.seal(*v, *plain)
	if err == nil {
		v.Secret = sealed
	}
	return *plain, err
}

// Remove removes a credential. Conflict: a cluster uses it.
func (r Credentials) Remove(ctx context.Context, project croft.Project, user, idOrName string) error {
	c, err := r.find(ctx, project, user, idOrName)
	if err != nil {
		return err
	}
	return r.Catalogue.RemoveCredential(ctx, c.ID)
}

// Rewrap seals all secrets of credentials, clusters and accounts again with the first key, so that the other keys can
// be removed, and returns the number of sealed values.
func (r *Registry) Rewrap(ctx context.Context) (n int, err error) {
	vault, is := r.Vault.(interface {
		Rewrap(v cluster.Sealed, about string) (cluster.Sealed, bool, error)
	})
	if !is {
		return 0, cluster.Away("no key is configured to seal secrets with: see credential_key_file")
	}
	all, err := r.Catalogue.Credentials(ctx, "", "")
	if err != nil {
		return 0, err
	}
	for _, c := range all {
		changed := false
		_, err := amend(ctx, nil, func(ctx context.Context) (cluster.Credential, int64, error) {
			now, err := r.Catalogue.Credential(ctx, c.ID)
			return now, now.Generation, err
		}, func(v *cluster.Credential) (err error) {
			v.Secret, changed, err = vault.Rewrap(v.Secret, cluster.AboutCredential(r.Partition, *v))
			return err
		}, func(ctx context.Context, v cluster.Credential) (cluster.Credential, error) {
			if !changed {
				return v, nil
			}
			return r.Catalogue.PutCredential(ctx, v)
		})
		if err != nil && croft.KindOf(err) != croft.NotFound { // else it was removed meanwhile
			return n, croft.Errorf(croft.KindOf(err), "credential %s of %s: %w", c.Name, c.User, err)
		}
		if changed && err == nil {
			n++
		}
	}
	more, err := r.rewrapClusters(ctx, vault.Rewrap)
	return n + more, err
}
