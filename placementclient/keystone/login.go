package keystone

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/utils"

	"croft"
	"croft/placementclient"
)

var _ placementclient.Auth = (*Cloud)(nil)

// Authenticate implements placementclient.Auth: it logs in. Invalid: Keystone refuses, or the server is not a Keystone.
// Unavailable: it does not answer.
func (c *Cloud) Authenticate(ctx context.Context, provider *gophercloud.ProviderClient) error {
	base, err := utils.BaseEndpoint(c.URL())
	if err != nil {
		return croft.Errorf(croft.Invalid, "auth_url %s: %w", c.URL(), err)
	}
	provider.IdentityBase, provider.IdentityEndpoint = gophercloud.NormalizeURL(base), gophercloud.NormalizeURL(c.URL())
	if err := openstack.Authenticate(ctx, provider, c.options); err != nil {
		return c.explain(ctx, err)
	}
	if renew := provider.ReauthFunc; renew != nil {
		provider.ReauthFunc = func(ctx context.Context) error {
			if err := renew(ctx); err != nil {
				return c.explain(ctx, err)
			}
			return nil
		}
	}
	return nil
}

// Endpoint implements placementclient.Auth: Placement's URL in the catalogue for the cloud's region and interface.
func (c *Cloud) Endpoint(provider *gophercloud.ProviderClient) (string, error) {
	wanted := c.wanted
	wanted.ApplyDefaults("placement")
	found, err := provider.EndpointLocator(wanted)
	if err != nil {
		region := "any region"
		if wanted.Region != "" {
			region = "region " + wanted.Region
		}
		return "",
			croft.Errorf(croft.Invalid, "the catalogue of Keystone at %s has no %s endpoint of placement in %s; "+
				"see interface and region_name of cloud %s, or set placement.endpoint", c.URL(), wanted.Availability,
				region, c.name)
	}
	return found, nil
}

// Advice implements placementclient.Auth.
func (c *Cloud) Advice() string {
	return "give the user of cloud " + c.name + " the role admin, or name another cloud in placement.cloud"
}

// explain returns the error of a failed login, with our kind and message.
func (c *Cloud) explain(ctx context.Context, err error) error {
	if answered, ok := errors.AsType[gophercloud.ErrUnexpectedResponseCode](err); ok {
		return c.explainAnswer(answered)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("log in to Keystone at %s: %w", c.URL(), ctx.Err())
	}
	u, ok := errors.AsType[*url.Error](err)
	if !ok {
		return croft.Errorf(croft.Invalid, "log in to Keystone at %s as cloud %s says: %w", c.URL(), c.name, err)
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](u.Err); ok {
		return croft.Errorf(croft.Invalid, "keystone at %s has a certificate that nobody vouches for here (%w); name "+
			"its CA as cacert of cloud %s, or in OS_CACERT", c.URL(), u.Err, c.name)
	}
	return croft.Errorf(croft.Unavailable, "keystone at %s does not answer (%w); see auth_url of cloud %s", c.URL(),
		u.Err, c.name)
}

func (c *Cloud) explainAnswer(a gophercloud.ErrUnexpectedResponseCode) error {
	switch {
	case a.Actual == http.StatusUnauthorized:
		return croft.Errorf(croft.Invalid, "keystone at %s refuses the credentials of cloud %s (%d %s)", c.URL(),
			c.name,
			a.Actual, message(a))
	case a.Actual >= 500:
		return croft.Errorf(croft.Unavailable, "keystone at %s answers %d %s", c.URL(), a.Actual, message(a))
	}
	return croft.Errorf(croft.Invalid, "keystone at %s answers %d %s; see auth_url of cloud %s", c.URL(), a.Actual,
		message(a), c.name)
}

// message returns Keystone's text for an error.
func message(a gophercloud.ErrUnexpectedResponseCode) string {
	var body struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(a.Body, &body) == nil && body.Error.Message != "" {
		return body.Error.Message
	}
	return http.StatusText(a.Actual)
}
