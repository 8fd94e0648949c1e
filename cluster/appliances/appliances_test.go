package appliances_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"gopkg.in/yaml.v3"

	"croft/cluster"
	"croft/cluster/appliances"
	"croft/cluster/local"
	"croft/image"
	"croft/schedule"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestWhatIsShippedCanBeBuilt has the driver read each text as it does before one is stored.
func TestWhatIsShippedCanBeBuilt(t *testing.T) {
	d, err := local.New(local.Config{Scheduler: new(schedule.Scheduler), Keys: noKeys{},
		ResolveImage: image.ReferenceFor})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, b := range appliances.All() {
		names = append(names, b.Appliance.Name)
		if err := cluster.CheckName("an appliance", b.Appliance.Name); err != nil || b.Appliance.Description == "" {
			t.Errorf("%+v: %v", b.Appliance, err)
		}
		for _, i := range b.Implementations {
			if strings.Contains(i.Template, "#include") {
				t.Errorf("%s: a file is not in its place", i.Appliance)
			}
			c, err := d.Check(t.Context(), i)
			if err != nil {
				t.Errorf("%s: %v", i.Appliance, err)
			}
			if !c.Declared["image"].Default {
				t.Errorf("%s cannot be built without parameters", i.Appliance)
			}
			for name, p := range c.Declared {
				if strings.HasSuffix(name, "_key") && !p.Hidden {
					t.Errorf("%s: parameter %s is not hidden", i.Appliance, name)
				}
			}
		}
	}
	if want := []string{"hosts", "nfs", "slurm"}; !slices.Equal(names, want) {
		t.Errorf("shipped are %v, want %v", names, want)
	}
}

type noKeys struct{ schedule.Keys }

// TestScriptsAreScripts reads the user-data of all members as the guest's shell would.
func TestScriptsAreScripts(t *testing.T) {
	for _, name := range appliances.Names() {
		text, _ := appliances.Text(name, "local")
		var all map[string]any
		if err := yaml.Unmarshal([]byte(text), &all); err != nil {
			t.Fatal(err)
		}
		for _, role := range []string{"master", "slave"} {
			data, has := all[role].(map[string]any)["user_data"].(string)
			if !has {
				continue
			}
			script := filepath.Join(t.TempDir(), "script")
			if err := os.WriteFile(script, []byte(strings.ReplaceAll(data, "$${", "${")), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command("sh", "-n", script).CombinedOutput(); err != nil {
				t.Errorf("%s, %s: %v\n%s", name, role, err, out)
			}
		}
	}
}

// TestTemplatesOfHeatKeepTheContract checks what the manager tells templates, and reads of them.
func TestTemplatesOfHeatKeepTheContract(t *testing.T) {
	text, shipped := appliances.Text("hosts", "heat")
	var template struct {
		Version    string `yaml:"heat_template_version"`
		Parameters map[string]struct{ Type string }
		Resources  map[string]any
		Outputs    map[string]any
	}
	if err := yaml.Unmarshal([]byte(text), &template); err != nil || !shipped || template.Version == "" {
		t.Fatalf("got %+v, %v", template, err)
	}
	for _, name := range []string{"cluster_size", "removed", "flavor_name", "image", "key_name", "network_name"} {
		if template.Parameters[name].Type == "" {
			t.Errorf("parameter %s is not declared", name)
		}
	}
	for _, name := range []string{"master_ip", "hosts"} {
		if template.Outputs[name] == nil {
			t.Errorf("there is no output %s", name)
		}
	}
	if _, shipped := appliances.Text("slurm", "heat"); shipped {
		t.Error("slurm is shipped for OpenStack, and nothing tests that")
	}
}
