package keystone

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gophercloud/gophercloud/v2"

	"croft"
	"croft/internal/egress"
	"croft/placement"
	"croft/placementclient/once"
)

var _ placement.Identity = (*Tokens)(nil)

// patience is the timeout of one request to Keystone.
const patience = 10 * time.Second

// Tokens looks up the users of tokens at Keystone. It is safe for concurrent use.
type Tokens struct {
	cloud    *Cloud
	login    *once.Once
	provider *gophercloud.ProviderClient
}

// NewTokens creates a Tokens that logs in as the cloud's user, which needs the role service or admin. It sends nothing.
func NewTokens(cloud *Cloud) *Tokens {
	t := egress.Internal()
	t.TLSClientConfig, t.MaxIdleConnsPerHost = cloud.TLS(), 64
	provider := &gophercloud.ProviderClient{HTTPClient: http.Client{Transport: t, Timeout: patience}}
	provider.UseTokenLock()
	return &Tokens{cloud: cloud, login: once.New(), provider: provider}
}

// Close closes idle connections.
func (t *Tokens) Close() { t.provider.HTTPClient.CloseIdleConnections() }

// answer is Keystone's answer about a token.
type answer struct {
	Token struct {
		Expires time.Time `json:"expires_at"`
		User    struct {
			ID string `json:"id"`
		} `json:"user"`
		Project struct {
			ID string `json:"id"`
		} `json:"project"`
		System struct {
			All bool `json:"all"`
		} `json:"system"`
		Roles []struct {
			Name string `json:"name"`
		} `json:"roles"`
	} `json:"token"`
}

// Validate implements placement.Identity.
func (t *Tokens) Validate(ctx context.Context, token string) (placement.Caller, error) {
	err := t.login.Do(ctx, func(ctx context.Context) error { return t.cloud.Authenticate(ctx, t.provider) })
	if err != nil {
		return placement.Caller{}, t.unknown(err)
	}
	var a answer
	_, err = t.provider.Request(ctx, http.MethodGet, t.provider.IdentityBase+"v3/auth/tokens?nocatalog",
		&gophercloud.RequestOpts{
			MoreHeaders: map[string]string{"X-Subject-Token": token}, JSONResponse: &a, OkCodes: []int{http.StatusOK},
		})
	if err != nil {
		return placement.Caller{}, t.refusal(ctx, err)
	}
	caller := placement.Caller{User: a.Token.User.ID, Project: a.Token.Project.ID, System: a.Token.System.All,
		Expires: a.Token.Expires}
	for _, role := range a.Token.Roles {
		caller.Roles = append(caller.Roles, role.Name)
	}
	return caller, nil
}

// refusal distinguishes an invalid token from a Keystone that does not answer.
func (t *Tokens) refusal(ctx context.Context, err error) error {
	if again, ok := errors.AsType[*gophercloud.ErrUnableToReauthenticate](err); ok {
		return t.unknown(again.ErrReauth)
	}
	answered, ok := errors.AsType[gophercloud.ErrUnexpectedResponseCode](err)
	switch {
	case !ok:
		return t.unknown(t.cloud.explain(ctx, err))
	case answered.Actual == http.StatusUnauthorized, answered.Actual == http.StatusForbidden:
		return t.unknown(fmt.Errorf("keystone at %s answers %d %s; give the user of cloud %s the role service",
			t.cloud.URL(), answered.Actual, message(answered), t.cloud.name))
	case answered.Actual >= 500:
		return t.unknown(t.cloud.explainAnswer(answered))
	}
	return croft.Errorf(croft.NotFound, "keystone at %s knows no such token", t.cloud.URL())
}

// unknown returns Unavailable for every error, because the holder of the token did not cause it.
func (t *Tokens) unknown(err error) error {
	return croft.Errorf(croft.Unavailable, "tokens cannot be checked: %s", err.Error())
}
