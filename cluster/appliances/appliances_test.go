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
	"croft/cluster/heat/template"
	"croft/cluster/local"
	"croft/compute/image"
	"croft/schedule"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestWhatIsShippedCanBeBuilt lets the driver check each text, as before it is stored.
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

// TestScriptsAreScripts parses the user-data of all members as the guest's shell does.
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

// TestEveryKindOfSiteHasEveryAppliance checks the templates of Heat, and compares their parameters with the local
// site's: a request that is valid for one type of site is valid for the other, except for parameters that only one of
// them supports.
func TestEveryKindOfSiteHasEveryAppliance(t *testing.T) {
	here := []string{"resources", "master_resources", "slave_resources"} // replaced by flavors at OpenStack
	there := []string{"cluster_size", "removed", "cluster_name", "cluster_id", "flavor_name", "network_name",
		"key_name", "authorized_keys", "wait"}
	for _, name := range appliances.Names() {
		text, shipped := appliances.Text(name, "heat")
		if !shipped {
			t.Errorf("%s is not shipped for OpenStack", name)
			continue
		}
		if strings.Contains(text, "#include") {
			t.Errorf("%s: a file is not in its place", name)
		}
		c, err := template.Check(text)
		if err != nil || !c.RemoveNamed {
			t.Errorf("%s: slaves can be removed by name: %t, %v", name, c.RemoveNamed, err)
		}
		var local struct {
			Parameters map[string]struct{ Hidden bool }
		}
		own, _ := appliances.Text(name, "local")
		if err := yaml.Unmarshal([]byte(own), &local); err != nil {
			t.Fatal(err)
		}
		for p, said := range local.Parameters {
			if declared, is := c.Declared[p]; is == slices.Contains(here, p) ||
				is && declared.Hidden != (said.Hidden || cluster.Hidden(p)) {
				t.Errorf("%s: parameter %s is %+v at OpenStack", name, p, declared)
			}
		}
		for p := range c.Declared {
			if _, is := local.Parameters[p]; !is && !slices.Contains(there, p) {
				t.Errorf("%s: the local site has no parameter %s", name, p)
			}
		}
	}
}
