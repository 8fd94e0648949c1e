package heat_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/mail"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"croft/cluster"
	"croft/cluster/appliances"
	"croft/cluster/heat/heattest"
	"croft/internal/acquaint"
	"croft/internal/testing/patient"
	"croft/internal/userdata"
)

// annsKey is a key whose comment needs quoting.
const annsKey = `ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB ann's "desk"`

// TestAnImageAloneWithOpenStack builds machines from an image, and checks that each gets the SSH keys.
func TestAnImageAloneWithOpenStack(t *testing.T) {
	engines(t, func(t *testing.T, clouds map[string]heattest.Cloud) {
		s := newBench(t, clouds["demo"], "", 2)
		s.b.Implementation.Image, s.b.Image = "debian-12", "7a1b"
		s.b.Parameters = map[string]any{"flavor_name": "small", "network_name": "net",
			"authorized_keys": []any{annsKey}, "cluster_id": string(s.b.Cluster)}
		s.launch()
		seen := s.until(cluster.Standing)
		if seen.MasterIP == "" || len(seen.Members) != 3 ||
			!strings.HasSuffix(seen.Members[2].Name, string(s.b.Cluster)+"-slave-1") || seen.Members[2].Address == "" {
			t.Errorf("got %+v", seen)
		}
		told := s.userData()
		for _, data := range told {
			want := "#cloud-config\nssh_authorized_keys: [\"ssh-ed25519 AAAA"
			if !strings.HasPrefix(data, want) || !strings.HasSuffix(data, ` ann's \"desk\""]`+"\n") {
				t.Errorf("a machine is told %q", data)
			}
		}
		if len(told) != 3 {
			t.Errorf("%d machines are told something: %q", len(told), told)
		}
	})
}

// TestOurTemplatesWithOpenStack builds with the shipped templates, and checks that Heat creates the same as the local
// site for the same appliance: the names of machines, the keys, the list of members, and the scripts.
func TestOurTemplatesWithOpenStack(t *testing.T) {
	for _, name := range appliances.Names() {
		t.Run(name, func(t *testing.T) {
			engines(t, func(t *testing.T, clouds map[string]heattest.Cloud) {
				text, _ := appliances.Text(name, "heat")
				s := newBench(t, clouds["demo"], text, 2)
				s.b.Name = "web"
				s.fill()
				s.launch()
				if strings.Contains(text, "WaitCondition") {
					s.untilMaster()
					if seen := s.look(); seen.Phase != cluster.Working {
						t.Errorf("before the master is set up the cluster is %+v", seen)
					}
					s.signal()
				}
				seen := s.until(cluster.Standing)
				s.wantMachines(seen, "web-master", "web-slave-0", "web-slave-1")
				before := s.userDataByName()
				s.wantSameAsLocal(name, before, seen.MasterIP)

				s.b.Indexes, s.b.Removed = []int{1, 2}, []int{0}
				if err := s.Resize(t.Context(), s.at, s.b); err != nil {
					t.Fatal(err)
				}
				seen = s.until(cluster.Standing)
				s.wantMachines(seen, "web-master", "web-slave-1", "web-slave-2")
				after := s.userDataByName()
				for _, stays := range []string{"web-master", "web-slave-1"} {
					if after[stays] != before[stays] {
						t.Errorf("%s would be replaced: its user-data changed", stays)
					}
				}
				s.wantSameAsLocal(name, after, seen.MasterIP)
			})
		})
	}
}

// fill sets the parameters as the manager does.
func (s *bench) fill() {
	s.Helper()
	contract, err := s.Check(s.Context(), s.b.Implementation)
	if err == nil {
		s.b.Parameters, _, err = cluster.Fill(contract, cluster.Filling{Cluster: s.b.Cluster, Name: s.b.Name,
			Slaves: len(s.b.Indexes), Keys: []string{annsKey}, Given: map[string]any{"image": "7a1b"},
			Site: cluster.Site{Defaults: map[string]any{"flavor_name": "small", "network_name": "net"}}})
	}
	if err != nil {
		s.Fatal(err)
	}
}

// wantMachines checks the machines in the outputs.
func (s *bench) wantMachines(seen cluster.Seen, names ...string) {
	s.Helper()
	var got []string
	for _, m := range seen.Members {
		got = append(got, m.Name)
		if m.Address == "" {
			s.Errorf("%s has no address", m.Name)
		}
	}
	if !slices.Equal(got, names) {
		s.Errorf("the machines are %q, want %q", got, names)
	}
}

// untilMaster waits until the master exists.
func (s *bench) untilMaster() {
	s.Helper()
	patient.Until(s.T, "there is a master", func() bool {
		s.look()
		return s.userDataByName()["web-master"] != ""
	})
}

// signal acts as the guest of the master at the end of its set-up: it runs the script, with another check.
func (s *bench) signal() {
	s.Helper()
	script := s.parts("web-master", s.userDataByName()["web-master"])["zz-croft-ready"]
	before, check, found := strings.Cut(script, "\nready '")
	if !found {
		s.Fatalf("the script does not end with a check:\n%s", script)
	}
	if out, err := exec.CommandContext(s.Context(), "sh", "-n", "-c", "check '"+check).CombinedOutput(); err != nil {
		s.Errorf("%v\n%s", err, out)
	}
	script = before + "\nready 'echo the check is told $0 $1'\n"
	out, err := exec.CommandContext(s.Context(), "sh", "-c", script).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "the check is told check ") {
		s.Fatalf("%v\n%s", err, out)
	}
}

// parts parses a member's user-data as cloud-init does, and returns its parts by name.
func (s *bench) parts(name, data string) map[string]string {
	s.Helper()
	if err := userdata.Check([]byte(data)); err != nil {
		s.Fatalf("%s is told what cloud-init would not read: %v\n%s", name, err, data)
	}
	if len(data) > 48<<10 {
		s.Errorf("%s is told %d bytes, and Nova takes 64 KiB of Base64", name, len(data))
	}
	m, err := mail.ReadMessage(strings.NewReader(data))
	if err != nil {
		s.Fatal(err)
	}
	_, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	if err != nil {
		s.Fatal(err)
	}
	all := map[string]string{}
	for r := multipart.NewReader(m.Body, params["boundary"]); ; {
		p, err := r.NextPart()
		if err == io.EOF {
			return all
		}
		if err != nil {
			s.Fatal(err)
		}
		var body bytes.Buffer
		if _, err := body.ReadFrom(p); err != nil {
			s.Fatal(err)
		}
		all[p.FileName()] = body.String()
		if strings.Contains(body.String(), "#!/bin/sh") {
			check := exec.CommandContext(s.Context(), "sh", "-n")
			check.Stdin = &body
			if out, err := check.CombinedOutput(); err != nil {
				s.Errorf("%s, part %s: %v\n%s", name, p.FileName(), err, out)
			}
		}
	}
}

// wantSameAsLocal compares the user-data of each machine with a machine of the local site.
func (s *bench) wantSameAsLocal(appliance string, told map[string]string, masterIP string) {
	s.Helper()
	text, _ := appliances.Text(appliance, "local")
	var local struct {
		Parameters map[string]struct{ Default any }
		Master     struct {
			UserData string `yaml:"user_data"`
		}
		Slave struct {
			UserData string `yaml:"user_data"`
		}
	}
	if err := yaml.Unmarshal([]byte(text), &local); err != nil {
		s.Fatal(err)
	}
	values := []string{"$${", "${", "${cluster_id}", string(s.b.Cluster)}
	for name, p := range local.Parameters {
		values = append(values, "${"+name+"}", fmt.Sprint(p.Default))
	}
	replace := strings.NewReplacer(values...)
	secrets := map[string]bool{}
	for name, data := range told {
		role, master, own := "slave", masterIP, local.Slave.UserData
		if name == "web-master" {
			role, master, own = "master", "-", local.Master.UserData
		}
		parts := s.parts(name, data)
		if got, want := strings.TrimSpace(parts["user-data"]), strings.TrimSpace(replace.Replace(own)); got != want {
			s.Errorf("%s runs\n%s\nand at the local site\n%s", name, got, want)
		}
		var config struct {
			Keys []string `yaml:"ssh_authorized_keys"`
		}
		if err := yaml.Unmarshal([]byte(parts["croft-keys"]), &config); err != nil ||
			!slices.Equal(config.Keys, []string{annsKey}) {
			s.Errorf("%s lets %q log in, %v", name, config.Keys, err)
		}
		_, member, _ := strings.Cut(parts["croft-member"], "secret ")
		secret, member, _ := strings.Cut(member, "\n")
		secrets[secret] = len(secret) == 64
		if want := "name " + name + "\nrole " + role + "\nmaster " + master + "\nEND\n"; strings.TrimSpace(member) !=
			strings.TrimSpace(want) {
			s.Errorf("%s is told %q, want %q", name, member, want)
		}
		if !strings.Contains(parts["croft-peers"], string(acquaint.Master)) || parts["croft-acquainted"] == "" {
			s.Errorf("%s does not get to know the others: %q", name, parts)
		}
		if strings.Contains(strings.ReplaceAll(data, "@\"", ""), " @") {
			s.Errorf("%s is told a name that was not replaced:\n%s", name, data)
		}
	}
	if len(secrets) != 1 || !secrets[first(secrets)] {
		s.Errorf("the members have the secrets %v", secrets)
	}
}

// first returns one of the keys of a map.
func first(all map[string]bool) string {
	for key := range all {
		return key
	}
	return ""
}

// userData returns the user-data of all machines of the stack.
func (s *bench) userData() (all []string) {
	s.Helper()
	for _, m := range s.machines() {
		all = append(all, m["user_data"])
	}
	return all
}

// userDataByName returns the user-data of all machines of the stack by machine name.
func (s *bench) userDataByName() map[string]string {
	s.Helper()
	all := map[string]string{}
	for _, m := range s.machines() {
		all[m["name"]] = m["user_data"]
	}
	return all
}

// machines returns the properties of all machines of the stack, which are nested stacks at a site without Nova.
func (s *bench) machines() (all []map[string]string) {
	s.Helper()
	get := func(path string, into any) {
		if status, text := s.front.Heat(s.T, http.MethodGet, path, nil); status != http.StatusOK ||
			json.Unmarshal([]byte(text), into) != nil {
			s.Fatal(path, status, text)
		}
	}
	var listed struct {
		Resources []struct {
			Type  string `json:"resource_type"`
			Links []struct{ Rel, Href string }
		}
	}
	get("/"+s.b.Remote.Name+"/"+s.b.Remote.ID+"/resources?nested_depth=3", &listed)
	for _, r := range listed.Resources {
		for _, link := range r.Links {
			_, path, found := strings.Cut(link.Href, "/stacks")
			if r.Type != "OS::Nova::Server" || link.Rel != "nested" || !found {
				continue
			}
			var nested struct {
				Stack struct{ Parameters map[string]string }
			}
			get(path, &nested)
			all = append(all, nested.Stack.Parameters)
		}
	}
	return all
}
