package keystone

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"
	"gopkg.in/yaml.v3"

	"croft"
	"croft/internal/nearest"
)

// files is clouds.yaml and, if it exists, secure.yaml.
type files struct {
	name           string // of clouds.yaml
	public, secret []byte
}

// readFiles reads the first clouds.yaml that exists, which must define the cloud.
func readFiles(cloud string) (files, error) {
	paths := searchPath()
	for _, path := range paths {
		f := files{name: path}
		var err error
		if f.public, err = os.ReadFile(path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return f, croft.Errorf(croft.Invalid, "read the clouds: %w", err)
		}
		secure := cmp.Or(os.Getenv("OS_CLIENT_SECURE_FILE"), filepath.Join(filepath.Dir(path), "secure.yaml"))
		if f.secret, err = os.ReadFile(secure); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return f, croft.Errorf(croft.Invalid, "read the clouds' secrets: %w", err)
		}
		return f, f.check(cloud, secure)
	}
	return files{}, croft.Errorf(croft.Invalid, "there is no %s; write one with the cloud %s, or name its place in "+
		"OS_CLIENT_CONFIG_FILE", strings.Join(paths, " and no "), cloud)
}

// searchPath lists the directories in which OpenStack's clients look for clouds.yaml.
func searchPath() []string {
	if file := os.Getenv("OS_CLIENT_CONFIG_FILE"); file != "" {
		return []string{file}
	}
	paths := []string{"clouds.yaml"}
	if dir, err := os.UserConfigDir(); err == nil {
		paths = append(paths, filepath.Join(dir, "openstack", "clouds.yaml"))
	}
	return append(paths, "/etc/openstack/clouds.yaml")
}

// check finds mistakes that the parser reports badly.
func (f files) check(name, secure string) error {
	public, err := decode(f.name, f.public)
	if err != nil {
		return err
	}
	secret, err := decode(secure, f.secret)
	if err != nil {
		return err
	}
	cloud, ok := public[name]
	known := slices.Sorted(maps.Keys(public))
	switch {
	case !ok && len(known) == 0:
		return croft.Errorf(croft.Invalid, "%s has no clouds", f.name)
	case !ok:
		return croft.Errorf(croft.Invalid, "%s has no cloud %s, only %s%s", f.name, name, strings.Join(known, ", "),
			nearest.Hint(name, known))
	case cloud.AuthInfo == nil && secret[name].AuthInfo == nil:
		return croft.Errorf(croft.Invalid, "cloud %s in %s has no auth: it wants auth_url and credentials", name,
			f.name)
	case !isSupported(cloud.AuthType):
		return croft.Errorf(croft.Invalid, "cloud %s in %s has auth_type %s; use password, token or "+
			"v3applicationcredential", name, f.name, cloud.AuthType)
	}
	return nil
}

func decode(file string, text []byte) (map[string]clouds.Cloud, error) {
	var all clouds.Clouds
	if err := yaml.Unmarshal(text, &all); err != nil {
		return nil, croft.Errorf(croft.Invalid, "%s: %w", file, err)
	}
	return all.Clouds, nil
}
