package settings

import (
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"

	"croft"
	"croft/internal/settings"
)

// hostExample documents the settings of a host.
const hostExample = "../../compute.yaml.example"

func noEnv(string) (string, bool) { return "", false }

func TestTheExampleIsTheDefaults(t *testing.T) {
	want := Defaults()
	want.StateDir = "/var/lib/croft" // root's
	want.Offer.Traits = []string{}   // YAML must write these
	want.Libvirt.EmulatedArchitectures = []croft.Arch{}
	want.Sim.Architectures = []croft.Arch{croft.ArchX86}
	got, _, err := settings.Load(Settings{}, settings.Source{File: hostExample, Env: noEnv})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s differs from the defaults (-defaults +example):\n%s", hostExample, diff)
	}
}

// TestTheExampleIsComplete finds settings that the example does not mention.
func TestTheExampleIsComplete(t *testing.T) {
	text, err := os.ReadFile(hostExample)
	if err != nil {
		t.Fatal(err)
	}
	defaults, err := yaml.Marshal(Defaults())
	if err != nil {
		t.Fatal(err)
	}
	got, want := yamlPaths(t, text), yamlPaths(t, defaults)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings in %s (-there are +it has):\n%s", hostExample, diff)
	}
}

// yamlPaths lists the settings of a document by their dotted paths.
func yamlPaths(t *testing.T, text []byte) []string {
	t.Helper()
	var root map[string]any
	if err := yaml.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	paths := map[string]bool{}
	var walk func(prefix string, m map[string]any)
	walk = func(prefix string, m map[string]any) {
		for key, value := range m {
			if inner, ok := value.(map[string]any); ok {
				walk(prefix+key+".", inner)
				continue
			}
			paths[prefix+key] = true
		}
	}
	walk("", root)
	return slices.Sorted(maps.Keys(paths))
}

func TestHostSettingsThatNothingCouldWorkWith(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Settings)
	}{
		{"no state directory", func(s *Settings) { s.StateDir = "" }},
		{"a hypervisor that does not exist", func(s *Settings) { s.Hypervisor = "xen" }},
		{"neither network nor bridge", func(s *Settings) { s.Network.Name = "" }},
		{"a ratio of nothing", func(s *Settings) { s.Offer.VCPURatio = 0 }},
		{"a negative reserve", func(s *Settings) { s.Offer.ReservedDiskGiB = -1 }},
		{"no builds at all", func(s *Settings) { s.MaxBuilds = 0 }},
		{"a resync without pause", func(s *Settings) { s.Resync = 0 }},
		{"a cache of nothing", func(s *Settings) { s.Images.CacheGiB = 0 }},
		{"a relative directory of images", func(s *Settings) { s.Images.AllowFiles = []string{"/srv", "images"} }},
		{"a hook by a relative path", func(s *Settings) { s.Expiry.Hook = []string{"tell"} }},
		{"redirects to a name", func(s *Settings) { s.Images.AllowRedirects = []string{"mirror.example.com"} }},
		{"a log level that does not exist", func(s *Settings) { s.LogLevel = "loud" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Defaults()
			if err := s.Validate(); err != nil {
				t.Fatalf("the defaults: %v", err)
			}
			c.change(&s)
			if err := s.Validate(); err == nil {
				t.Error("it is accepted")
			}
		})
	}
}
