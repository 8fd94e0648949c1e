package schedule_test

import (
	"fmt"
	"strings"
	"testing"

	"croft"
	"croft/schedule"
)

// TestAnAddressIsTakenBeforeTheOrder: another request is faster, after the host was chosen.
func TestAnAddressIsTakenBeforeTheOrder(t *testing.T) {
	const address = "10.0.0.9"
	for _, inOneStep := range []bool{false, true} {
		for places, want := range map[int]string{1: "", 2: "host2"} {
			t.Run(fmt.Sprintf("%d hosts, in one step %v", places, inOneStep), func(t *testing.T) {
				c := newCloud(t, []int64{8, 8}[:places]...)
				if inOneStep {
					c.inOneStep(nil)
				}
				for n, id := range c.hosts {
					host := croft.Host{ID: id, Name: fmt.Sprintf("host%d", n+1),
						GuestAddresses: []string{"10.0.0.2-10.0.0.20"}}
					if err := c.store.PutHost(t.Context(), host); err != nil {
						t.Fatal(err)
					}
				}
				c.placement.Fail("Claim", func() error {
					faster, err := c.store.Create(t.Context(), croft.Instance{ID: croft.NewInstanceID(),
						Project: croft.DefaultProject, Name: "faster",
						Spec: croft.Spec{InstanceSettings: croft.InstanceSettings{FixedAddress: address}}})
					if err == nil {
						order := schedule.NewOrder(c.Partition, faster, c.hosts[0], croft.WantRunning)
						_, err = c.store.Assign(t.Context(), faster, order)
					}
					return err
				})
				r := request(t, "web")
				r.FixedAddress = address
				d, err := c.Request(t.Context(), r)
				if want != "" {
					if err != nil || d.Host.Name != want {
						t.Fatalf("went to %q, %v, want %s", d.Host.Name, err, want)
					}
					return
				}
				wantKind(t, err, croft.Conflict)
				if !strings.Contains(err.Error(), "the address 10.0.0.9 is in use by instance faster") {
					t.Errorf("it says %v", err)
				}
				if claims := c.placement.Claimed(); len(claims) > 0 {
					t.Errorf("claims are left: %q", claims)
				}
			})
		}
	}
}

// TestWithoutAPossibleHostTheAddressIsNotTheReason: the only host that the request admits is not in the cloud.
func TestWithoutAPossibleHostTheAddressIsNotTheReason(t *testing.T) {
	c := newCloud(t, 8)
	host := croft.Host{ID: c.hosts[0], Name: "host1", GuestAddresses: []string{"10.0.0.2-10.0.0.20"}}
	if err := c.store.PutHost(t.Context(), host); err != nil {
		t.Fatal(err)
	}
	r := request(t, "web")
	r.FixedAddress = "10.0.0.9"
	r.Query.Groups[0].InTree = croft.NewHostID()
	_, err := c.Request(t.Context(), r)
	wantKind(t, err, croft.NoCapacity)
	if strings.Contains(err.Error(), "range") {
		t.Errorf("it says %v", err)
	}
}

// TestAnOldAgentGetsNoChosenAddress: an agent that does not know chosen addresses publishes no range.
func TestAnOldAgentGetsNoChosenAddress(t *testing.T) {
	c := newCloud(t, 8, 8)
	r := request(t, "web")
	r.FixedAddress = "10.0.0.9"
	_, err := c.Request(t.Context(), r)
	wantKind(t, err, croft.NotFound)
	c.nothingLeft(t)
	host := croft.Host{ID: c.hosts[1], Name: "host2", GuestAddresses: []string{"10.0.0.2-10.0.0.20"}}
	if err := c.store.PutHost(t.Context(), host); err != nil {
		t.Fatal(err)
	}
	d, err := c.Request(t.Context(), r)
	if err != nil || d.Host.Name != "host2" {
		t.Errorf("went to %q, %v, want host2", d.Host.Name, err)
	}
}
