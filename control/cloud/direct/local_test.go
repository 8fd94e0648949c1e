package direct

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"croft/cluster/seal"
)

func TestKeysOfClustersAreOnlyThoseOfTheNotedCloud(t *testing.T) {
	t.Parallel()
	const etcd = "https://10.0.0.1:2379"
	for _, c := range []struct {
		name    string
		key     bool     // the state directory has a key
		noted   []string // key files in the settings of croft up
		asked   string   // etcd that the command's settings name
		unnoted bool     // this machine has no cloud with certificates
		want    []string // key files below the state directory
	}{
		{name: "the state directory has a key", key: true, want: []string{"cluster.key"}},
		{name: "the state directory has none"},
		{name: "settings that name files replace it", key: true, noted: []string{"new.key", "old.key"},
			want: []string{"new.key", "old.key"}},
		{name: "another cloud is named", key: true, noted: []string{"new.key"}, asked: "https://10.0.0.2:2379"},
		{name: "the default address is named", key: true, noted: []string{"new.key"}, asked: DefaultEtcd},
		{name: "nothing says whose the key is", key: true, unnoted: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			below := func(files []string) (all []string) {
				for _, file := range files {
					all = append(all, filepath.Join(dir, file))
				}
				return all
			}
			if c.key {
				if _, err := seal.Generate(ClusterKey(dir)); err != nil {
					t.Fatal(err)
				}
			}
			var note Local
			note.Etcd.Endpoints, note.Clusters.CredentialKeyFile = []string{etcd}, below(c.noted)
			if !c.unnoted {
				if err := note.Write(LocalFile(dir), ""); err != nil {
					t.Fatal(err)
				}
			}
			s := Defaults()
			s.Etcd.Endpoints = nil
			if c.asked != "" {
				s.Etcd.Endpoints = []string{c.asked}
			}
			if err := AddLocal(dir, &s.Etcd, &s.Placement); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(below(c.want), s.Etcd.SealKeys); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestSettingsForAnotherMachineNameNoKeyOfClusters: an operator's settings elsewhere are read strictly as
// schedule.yaml, which has no such setting.
func TestSettingsForAnotherMachineNameNoKeyOfClusters(t *testing.T) {
	t.Parallel()
	var note Local
	note.Etcd.Endpoints, note.Clusters.CredentialKeyFile = []string{"https://10.0.0.1:2379"}, []string{"/etc/croft/key"}
	file := filepath.Join(t.TempDir(), SettingsFile)
	if err := note.Inside().Write(file, ""); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const want = "etcd:\n    endpoints:\n        - https://10.0.0.1:2379\nplacement: {}\n"
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Error(diff)
	}
}

// TestOneMemberOfEtcdThatOthersReachIsEnough for another machine.
func TestOneMemberOfEtcdThatOthersReachIsEnough(t *testing.T) {
	for _, c := range []struct {
		etcd      []string
		placement string
		want      bool
	}{
		{[]string{"https://127.0.0.1:2379"}, "https://10.0.0.1:8778", true},
		{[]string{"https://127.0.0.1:2379", "https://10.0.0.2:2379"}, "https://10.0.0.1:8778", false},
		{[]string{"https://10.0.0.2:2379"}, "https://127.0.0.1:8778", true},
		{[]string{"https://10.0.0.2:2379"}, "https://10.0.0.1:8778", false},
	} {
		var a Local
		a.Etcd.Endpoints, a.Placement.Endpoint = c.etcd, c.placement
		if got := a.OnlyHere(); got != c.want {
			t.Errorf("etcd at %s and Placement at %s are only here: %v", c.etcd, c.placement, got)
		}
	}
}
