// Package heattest connects tests to a real OpenStack, and provides a proxy in front of it that simulates faults:
// servers that do not answer, refuse or fail.
package heattest

import (
	"os"
	"path/filepath"
	"testing"

	"gopkg.in/yaml.v3"

	"croft"
	"croft/cluster"
)

// The variables that name a clouds.yaml with the clouds admin, demo and demo2: of an OpenStack whose Heat uses
// convergence, and of one with the older engine.
const (
	Convergence = "CROFT_TEST_CLOUDS"
	Older       = "CROFT_TEST_CLOUDS_OLDER"
)

// Cloud is a user of an OpenStack.
type Cloud struct {
	Dir  string `yaml:"-"` // of the clouds.yaml
	Auth struct {
		URL           string `yaml:"auth_url"`
		Username      string `yaml:"username"`
		Password      string `yaml:"password"`
		Project       string `yaml:"project_name"`
		UserDomain    string `yaml:"user_domain_name"`
		ProjectDomain string `yaml:"project_domain_name"`
	} `yaml:"auth"`
	Region string `yaml:"region_name"`
}

// Clouds returns the clouds of the file that a variable names. Without the variable it skips the test.
func Clouds(t testing.TB, variable string) map[string]Cloud {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		t.Skipf("%s is not set: see scripts/test-openstack", variable)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Clouds map[string]Cloud `yaml:"clouds"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for name, c := range file.Clouds {
		c.Dir = filepath.Dir(path)
		file.Clouds[name] = c
	}
	return file.Clouds
}

// Access returns the access to a cloud as its user, through the Keystone at authURL; empty: the cloud's own.
func (c Cloud) Access(site, authURL string) cluster.SiteAccess {
	if authURL == "" {
		authURL = c.Auth.URL
	}
	return cluster.SiteAccess{
		Site: cluster.Site{Name: site, Type: cluster.OpenStack, AuthURL: authURL, Region: c.Region, Enabled: true},
		Credential: cluster.Credential{ID: cluster.NewCredentialID(), Name: c.Auth.Username, Site: site,
			Project: croft.Project("physics"), User: "ada", Kind: cluster.Password, Username: c.Auth.Username,
			UserDomain: c.Auth.UserDomain, ProjectName: c.Auth.Project, ProjectDomain: c.Auth.ProjectDomain},
		Secret: cluster.NewSecret(c.Auth.Password),
	}
}
