// Package keystone is a client of OpenStack's Keystone. It logs in with clouds.yaml or the variables OS_*, for the
// client of Placement, and validates the tokens of callers, for croft's own server. It renews expired tokens.
package keystone

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"net/url"
	"os"
	"slices"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"
	"gopkg.in/yaml.v3"

	"croft"
)

// Environment is the cloud that the environment describes: the cloud in clouds.yaml named by OS_CLOUD, otherwise
// OS_AUTH_URL and the other variables.
const Environment = "env"

// Cloud is a login at one Keystone, with the region and interface to select in its catalogue. It is safe for concurrent
// use.
type Cloud struct {
	name    string
	options gophercloud.AuthOptions
	wanted  gophercloud.EndpointOpts // region and interface to select in the catalogue
	tls     *tls.Config
}

// Load reads a cloud from clouds.yaml and secure.yaml, or Environment. It sends nothing. Every error is Invalid, and
// says which option is missing in which file.
func Load(name string) (*Cloud, error) {
	if name == Environment {
		name = os.Getenv("OS_CLOUD")
		if name == "" {
			return fromVariables()
		}
	}
	f, err := readFiles(name)
	if err != nil {
		return nil, err
	}
	options := []clouds.ParseOption{clouds.WithCloudName(name), clouds.WithCloudsYAML(bytes.NewReader(f.public))}
	if f.secret != nil {
		options = append(options, clouds.WithSecureYAML(bytes.NewReader(f.secret)))
	}
	return parse(name, "cloud "+name+" in "+f.name, options)
}

// fromVariables returns the cloud of a sourced openrc in the form of clouds.yaml.
func fromVariables() (*Cloud, error) {
	if os.Getenv("OS_AUTH_URL") == "" {
		return nil, croft.Errorf(croft.Invalid, "%s means what the environment says, and neither OS_CLOUD nor "+
			"OS_AUTH_URL is set; source an openrc, or name a cloud of clouds.yaml", Environment)
	}
	text, err := yaml.Marshal(clouds.Clouds{Clouds: map[string]clouds.Cloud{Environment: variables(os.Getenv)}})
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "the variables OS_*: %w", err)
	}
	return parse(Environment, "the environment (OS_*)",
		[]clouds.ParseOption{clouds.WithCloudName(Environment), clouds.WithCloudsYAML(bytes.NewReader(text))})
}

func variables(get func(string) string) clouds.Cloud {
	return clouds.Cloud{
		AuthType:   clouds.AuthType(get("OS_AUTH_TYPE")),
		RegionName: get("OS_REGION_NAME"),
		Interface:  get("OS_INTERFACE"),
		AuthInfo: &clouds.AuthInfo{
			AuthURL:                     get("OS_AUTH_URL"),
			Token:                       get("OS_TOKEN"),
			Username:                    get("OS_USERNAME"),
			UserID:                      cmp.Or(get("OS_USER_ID"), get("OS_USERID")),
			Password:                    get("OS_PASSWORD"),
			ApplicationCredentialID:     get("OS_APPLICATION_CREDENTIAL_ID"),
			ApplicationCredentialName:   get("OS_APPLICATION_CREDENTIAL_NAME"),
			ApplicationCredentialSecret: get("OS_APPLICATION_CREDENTIAL_SECRET"),
			SystemScope:                 get("OS_SYSTEM_SCOPE"),
			ProjectName:                 cmp.Or(get("OS_PROJECT_NAME"), get("OS_TENANT_NAME")),
			ProjectID:                   cmp.Or(get("OS_PROJECT_ID"), get("OS_TENANT_ID")),
			UserDomainName:              get("OS_USER_DOMAIN_NAME"),
			UserDomainID:                get("OS_USER_DOMAIN_ID"),
			ProjectDomainName:           get("OS_PROJECT_DOMAIN_NAME"),
			ProjectDomainID:             get("OS_PROJECT_DOMAIN_ID"),
			DomainName:                  get("OS_DOMAIN_NAME"),
			DomainID:                    get("OS_DOMAIN_ID"),
			TrustID:                     get("OS_TRUST_ID"),
		},
	}
}

// parse builds a cloud from options. where is their origin, for error messages.
func parse(name, where string, options []clouds.ParseOption) (*Cloud, error) {
	auth, wanted, tls, err := clouds.Parse(options...)
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "%s: %w", where, err)
	}
	addDomains(&auth)
	if lacks := lacking(auth); lacks != "" {
		return nil, croft.Errorf(croft.Invalid, "%s %s", where, lacks)
	}
	if auth.ApplicationCredentialID != "" || auth.ApplicationCredentialName != "" {
		auth.Password = "" // otherwise the password would be used
	}
	auth.AllowReauth = auth.TokenID == "" // a token cannot renew itself
	return &Cloud{name: name, options: auth, wanted: wanted, tls: tls}, nil
}

// addDomains sets the domain "default" if none is given, as OpenStack's clients do.
func addDomains(auth *gophercloud.AuthOptions) {
	if auth.Username != "" && auth.DomainID == "" && auth.DomainName == "" {
		auth.DomainID = "default"
	}
	if s := auth.Scope; s != nil && s.ProjectName != "" && s.DomainID == "" && s.DomainName == "" {
		s.DomainID = "default"
	}
}

// lacking returns the option that is missing for a login; "": none is missing.
func lacking(auth gophercloud.AuthOptions) string {
	u, err := url.Parse(auth.IdentityEndpoint)
	user := auth.Username != "" || auth.UserID != ""
	credential := auth.ApplicationCredentialID != "" || auth.ApplicationCredentialName != ""
	switch {
	case auth.IdentityEndpoint == "":
		return "has no auth_url"
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return "has an auth_url that is none: " + auth.IdentityEndpoint
	case credential && auth.ApplicationCredentialSecret == "":
		return "has an application credential without application_credential_secret"
	case auth.ApplicationCredentialID == "" && credential && !user:
		return "has application_credential_name and no user: add username, or give application_credential_id"
	case credential || auth.TokenID != "":
		return ""
	case !user:
		return "has neither username and password, nor an application credential, nor a token"
	case auth.Password == "":
		return "has no password"
	case auth.Scope == nil:
		return "names no project: add project_name, or system_scope: all"
	}
	return ""
}

// supported lists the supported kinds of login; "" selects one by the given options.
var supported = []clouds.AuthType{"", clouds.AuthPassword, clouds.AuthToken, clouds.AuthV3Password,
	clouds.AuthV3Token, clouds.AuthV3ApplicationCredential}

func isSupported(t clouds.AuthType) bool { return slices.Contains(supported, t) }

// TLS returns the TLS settings of the cloud's services: CA and client certificate.
func (c *Cloud) TLS() *tls.Config { return c.tls.Clone() }

// URL returns the URL of Keystone.
func (c *Cloud) URL() string { return c.options.IdentityEndpoint }
