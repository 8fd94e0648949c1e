package apply

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"croft"
	"croft/control/api"
	"croft/internal/out"
)

const sample = `
keys: {me: ssh-ed25519 AAAA me@here}
volumes:
  data: {size: 2G}
  pictures: {size: 5G, storage: shared}
instances:
  web: {query: "VCPU:1,MEMORY_MB:64,DISK_GB:1", image: debian-12, volumes: [data, pictures]}
  db: {query: "VCPU:1,MEMORY_MB:64,DISK_GB:1", image: debian-12}
`

// known is what exists in the tests: the instances and volumes of sample, with one difference in each case.
func known() state {
	web := api.Instance{Name: "web", ID: "1", State: "running", Image: "debian-12", Query: "VCPU:1",
		Resources: croft.Resources{croft.VCPU: 1, croft.MemoryMB: 64, croft.DiskGB: 1}}
	db := web
	db.Name, db.ID = "db", "2"
	return state{keys: map[string]string{"me": "ssh-ed25519 AAAA elsewhere"},
		volumes: map[string]api.Volume{
			"data":     {Name: "data", SizeGB: 2, Instance: "1", InstanceName: "web"},
			"pictures": {Name: "pictures", SizeGB: 5, Storage: "nfs1", Instance: "1", InstanceName: "web"}},
		instances: map[string]api.Instance{"web": web, "db": db}}
}

func TestAPlanHasTheDifferencesBetweenAFileAndAProject(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*state)
		want   string // steps, or the beginning of the refusal after !
	}{
		{"nothing differs", func(*state) {}, ""},
		{"an empty project", func(s *state) { *s = state{} },
			"create key me ssh-ed25519, create volume pictures 5G, create instance db DISK_GB:1,MEMORY_MB:64,VCPU:1, debian-12, " +
				"without a key to log in with, create instance web DISK_GB:1,MEMORY_MB:64,VCPU:1, debian-12, " +
				"without a key to log in with, with a new volume data of 2G"},
		{"a volume of an instance that exists is made near it", func(s *state) { delete(s.volumes, "data") },
			"create volume data 2G, change instance web attach volume data"},
		{"a volume of another instance of the file changes its instance", func(s *state) {
			s.volumes["data"] = api.Volume{Name: "data", SizeGB: 2, Instance: "2", InstanceName: "db"}
		}, "change instance db detach volume data, change instance web attach volume data"},
		{"a volume that the file has without an instance stays attached", func(s *state) {
			s.volumes["more"] = api.Volume{Name: "more", SizeGB: 1, Instance: "2", InstanceName: "db"}
		}, ""},
		{"a list of volumes is complete", func(s *state) {
			s.volumes["more"] = api.Volume{Name: "more", SizeGB: 1, Instance: "1", InstanceName: "web"}
		}, "change instance web detach volume more"},
		{"fields that the file leaves out stay", func(s *state) {
			db := s.instances["db"]
			db.Protected, db.Keys, db.UserData, db.Tags = true, []string{"ssh-ed25519 CCCC me"}, []byte("#!/bin/sh"),
				map[string]string{"role": "db"}
			db.Restart = croft.RestartAlways
			s.instances["db"] = db
		}, ""},
		{"a volume of an instance outside the file stays", func(s *state) {
			s.volumes["data"] = api.Volume{Name: "data", SizeGB: 2, Instance: "3", InstanceName: "other"}
		}, "!volume data is attached to other"},
		{"a volume on a host is not one on shared storage", func(s *state) {
			s.volumes["pictures"] = api.Volume{Name: "pictures", SizeGB: 5, Instance: "1"}
		}, "!volume pictures is on its host"},
		{"a running instance keeps its memory", func(s *state) {
			s.instances["db"].Resources[croft.MemoryMB] = 32
		}, "!instance db is running, and its MEMORY_MB changes from 32 to 64 only while it is stopped"},
		{"a disk grows at any time", func(s *state) {
			web := s.instances["web"]
			web.Resources = croft.Resources{croft.VCPU: 1, croft.MemoryMB: 64}
			s.instances["web"] = web
		}, "change instance web resize DISK_GB from 0 to 1"},
		{"another class of resources stays", func(s *state) {
			web := s.instances["web"]
			web.Resources = croft.Resources{croft.VCPU: 1, croft.MemoryMB: 64, croft.DiskGB: 1, "VGPU": 1}
			s.instances["web"] = web
		}, "!instance web has VGPU:1, and its VGPU cannot change to 0"},
		{"a key is not replaced", func(s *state) { s.keys["me"] = "ssh-ed25519 BBBB me" },
			"!key me is another key in the cloud"},
		{"all that cannot be changed is named", func(s *state) {
			s.keys["me"] = "ssh-ed25519 BBBB me"
			s.volumes["data"] = api.Volume{Name: "data", SizeGB: 9, Instance: "1", InstanceName: "web"}
		}, "!key me is another key in the cloud (`croft key remove me`, and apply again); volume data has 9 GiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var want document
			d, err := decodedSample()
			if err == nil {
				want = d
			}
			have := known()
			c.change(&have)
			steps, err := plan(want, have)
			var words []string
			for _, s := range steps {
				words = append(words, strings.TrimSpace(string(s.Action)+" "+s.Kind+" "+s.Name+" "+s.What))
			}
			got := strings.Join(words, ", ")
			if refusal, is := strings.CutPrefix(c.want, "!"); is {
				if !errors.Is(err, croft.Conflict) || !strings.Contains(err.Error(), refusal) {
					t.Errorf("got %v; want the refusal %q", err, refusal)
				}
			} else if err != nil || got != c.want {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
		})
	}
}

// decodedSample returns the sample, whose key need not be a real one.
func decodedSample() (document, error) {
	d, err := parse("sample.yaml", []byte(strings.Replace(sample, "keys: {me: ssh-ed25519 AAAA me@here}", "", 1)))
	d.Keys = map[string]string{"me": "ssh-ed25519 AAAA me@here"}
	return d, err
}

func FuzzAFileIsReadOrRefusedWithItsName(f *testing.F) {
	f.Add(strings.Replace(sample, "keys: {me: ssh-ed25519 AAAA me@here}", "", 1))
	f.Add("instances: {web: {query: VCPU:1, image: x, labels: {a: 1, b: true, c: x}, mounts: [{volume: a, path: /b}]}}")
	f.Add("volumes: {a: {size: *x}}")
	f.Add("instances: [1]")
	f.Fuzz(func(t *testing.T, text string) {
		d, err := parse("file.yaml", []byte(text))
		if err != nil {
			if !errors.Is(err, croft.Invalid) || !strings.HasPrefix(err.Error(), "file.yaml:") {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		if _, err := plan(d, state{}); err != nil && !errors.Is(err, croft.Conflict) {
			t.Fatalf("%q: %v", text, err)
		}
		var printed bytes.Buffer
		if err := write(&printed, out.FormatYAML, d); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if printed.Len() > 0 && !strings.HasPrefix(printed.String(), "#") {
			if _, err := parse("again.yaml", printed.Bytes()); err != nil {
				t.Fatalf("%q is printed as %q: %v", text, printed.String(), err)
			}
		}
	})
}
