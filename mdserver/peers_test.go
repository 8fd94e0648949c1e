package mdserver_test

import (
	"net/http"
	"strings"
	"testing"

	"croft"
	"croft/internal/hostkey"
	"croft/mdserver"
)

func TestAMemberOfAClusterLearnsOfTheOthers(t *testing.T) {
	key, err := hostkey.New()
	if err != nil {
		t.Fatal(err)
	}
	public, err := hostkey.Public(key)
	if err != nil {
		t.Fatal(err)
	}
	alone := bare()
	alone.ClusterKey = key
	met := alone
	met.Peers = []croft.Peer{{Name: "c-master", Address: "192.0.2.1", Role: "master", HostKey: "ssh-ed25519 AAAA"},
		{Name: "c-slave-0", Address: "192.0.2.2"}}
	for _, c := range []struct {
		name, path, want string // empty: there is no such file
		guest            mdserver.Guest
	}{
		{"a member reads the key of the cluster", "cluster-key", key, alone},
		{"and its public half", "cluster-key.pub", public + "\n", alone},
		{"it knows no peers before they have addresses", "peers", "", alone},
		{"then it does", "peers", "192.0.2.1 c-master master ssh-ed25519 AAAA\n192.0.2.2 c-slave-0 - \n", met},
		{"what is in no cluster has no key of one", "cluster-key", "", bare()},
		{"and no peers", "peers", "", bare()},
	} {
		t.Run(c.name, func(t *testing.T) {
			base := "http://" + serve(t, mdserver.Config{Guests: guests{bareAddr: c.guest}})
			client := clientFrom(t, bareAddr)
			answer, body := get(t, client, base+"/croft/v1/"+c.path)
			if c.want == "" && answer.StatusCode != http.StatusNotFound || c.want != "" && body != c.want {
				t.Errorf("got %s %q, want %q", answer.Status, body, c.want)
			}
			_, vendor := get(t, client, base+"/openstack/latest/vendor_data2.json")
			for _, part := range []string{"croft-peers", "croft-acquainted"} {
				if strings.Contains(vendor, part) != (c.guest.ClusterKey != "") {
					t.Errorf("the vendor data is %q", vendor)
				}
			}
		})
	}
}
