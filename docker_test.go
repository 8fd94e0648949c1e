package croft_test

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// A composeService describes a service of docker/compose.yaml, with the properties that we guarantee.
type composeService struct {
	Profiles    []string
	Build       composeBuild
	Ports       []string
	Volumes     []string
	Healthcheck map[string]any
	Environment map[string]string
	CapDrop     []string `yaml:"cap_drop"`
	SecurityOpt []string `yaml:"security_opt"`
	ReadOnly    bool     `yaml:"read_only"`
	Restart     string
}

type composeBuild struct{ Context, Dockerfile string }

func TestComposeFile(t *testing.T) {
	text, err := os.ReadFile("docker/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var compose struct {
		Services map[string]composeService
		Volumes  map[string]any
	}
	if err := yaml.Unmarshal(text, &compose); err != nil {
		t.Fatal(err)
	}
	profiles := map[string][]string{}
	for name, s := range compose.Services {
		for _, p := range s.Profiles {
			profiles[p] = append(profiles[p], name)
		}
		checkConfined(t, name, s)
		checkBuild(t, name, s.Build)
		for _, v := range s.Volumes {
			volume, place, _ := strings.Cut(v, ":")
			if _, ok := compose.Volumes[volume]; !ok {
				t.Errorf("%s uses volume %s, which is not declared", name, volume)
			}
			if strings.HasSuffix(volume, "authority") != (place == "/keys/ca") || place == "/keys/ca" &&
				s.Ports != nil {
				t.Errorf("%s has volume %s at %s: the authority's key is for what makes keys alone", name, volume,
					place)
			}
		}
	}
	for profile, want := range map[string]string{"openstack": "database etcd keys placement", "croft": "croft"} {
		slices.Sort(profiles[profile])
		if got := strings.Join(profiles[profile], " "); got != want {
			t.Errorf("profile %s is %q, want %q", profile, got, want)
		}
	}
	const retries = "OS_PLACEMENT__ALLOCATION_CONFLICT_RETRY_COUNT"
	if got := compose.Services["placement"].Environment[retries]; got != "1" {
		t.Errorf("%s is %q: with more than 1, Placement hands out more than there is", retries, got)
	}
}

// checkConfined requires that a service listens on loopback by default, reports its health, and has no
// unnecessary privileges.
func checkConfined(t *testing.T, name string, s composeService) {
	runs := s.Restart != "no"
	if runs && s.Healthcheck == nil {
		t.Errorf("%s has no health check", name)
	}
	for _, p := range s.Ports {
		if !strings.HasPrefix(p, "${CROFT_BIND:-127.0.0.1}:") {
			t.Errorf("%s publishes %s, which is not on loopback unless asked for", name, p)
		}
	}
	if !slices.Equal(s.CapDrop, []string{"ALL"}) || !s.ReadOnly ||
		!slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
		t.Errorf("%s is not confined: %+v", name, s)
	}
	for variable := range s.Environment {
		if strings.Contains(variable, "PASSWORD") || strings.Contains(variable, "TOKEN") ||
			strings.Contains(variable, "CONNECTION") {
			t.Errorf("%s gets a secret from the file: %s", name, variable)
		}
	}
}

// checkBuild requires the Dockerfile, and the files that it copies from its context.
func checkBuild(t *testing.T, service string, b composeBuild) {
	context := filepath.Join("docker", b.Context)
	dockerfile := filepath.Join(context, cmp.Or(b.Dockerfile, "Dockerfile"))
	text, err := os.ReadFile(dockerfile)
	if err != nil {
		t.Errorf("%s: %v", service, err)
		return
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) < 3 || words[0] != "COPY" || strings.HasPrefix(words[1], "--from") {
			continue
		}
		for _, source := range words[1 : len(words)-1] {
			if strings.HasPrefix(source, "--") {
				continue
			}
			if _, err := os.Stat(filepath.Join(context, source)); err != nil {
				t.Errorf("%s copies %s: %v", dockerfile, source, err)
			}
		}
	}
}
