package croft_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// A composeService is what we promise about a service of docker/compose.yaml.
type composeService struct {
	Build       composeBuild
	Ports       []string
	Volumes     []string
	Healthcheck map[string]any
	Environment map[string]string
	NetworkMode string `yaml:"network_mode"`
}

type composeBuild struct{ Context, Dockerfile string }

// UnmarshalYAML reads both ways that a build can be written.
func (b *composeBuild) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode {
		b.Dockerfile = "Dockerfile"
		return node.Decode(&b.Context)
	}
	type plain composeBuild
	return node.Decode((*plain)(b))
}

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
	for _, name := range []string{"etcd", "database", "placement", "agent"} {
		if _, ok := compose.Services[name]; !ok {
			t.Errorf("no service %s", name)
		}
	}
	for name, s := range compose.Services {
		if s.Healthcheck == nil && s.NetworkMode != "host" {
			t.Errorf("%s has no health check", name)
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "${CROFT_BIND:-127.0.0.1}:") {
				t.Errorf("%s publishes %s, which is not on loopback unless asked for", name, p)
			}
		}
		checkBuild(t, name, s.Build)
		for _, v := range s.Volumes {
			volume, _, _ := strings.Cut(v, ":")
			if _, ok := compose.Volumes[volume]; !ok && !filepath.IsAbs(volume) {
				t.Errorf("%s uses volume %s, which is not declared", name, volume)
			}
		}
	}
	const retries = "OS_PLACEMENT__ALLOCATION_CONFLICT_RETRY_COUNT"
	if got := compose.Services["placement"].Environment[retries]; got != "1" {
		t.Errorf("%s is %q: with more than 1, Placement hands out more than there is", retries, got)
	}
}

// checkBuild wants the Dockerfile, and what it copies from its context.
func checkBuild(t *testing.T, service string, b composeBuild) {
	context := filepath.Join("docker", b.Context)
	dockerfile := filepath.Join(context, b.Dockerfile)
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
