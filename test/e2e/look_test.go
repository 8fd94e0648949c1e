package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft/internal/testing/libvirttest"
)

// eventually polls until ask returns no error; after patience it fails the test with the last error. It asks less and
// less often, since a command costs as much of the processor as a guest that boots meanwhile.
func eventually(t *testing.T, what string, ask func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for pause := 50 * time.Millisecond; ; pause = min(pause*3/2, time.Second) {
		err := ask(ctx)
		if err == nil {
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			t.Fatalf("%s: waited %v in vain: %v", what, patience, err)
		}
	}
}

// client keeps no connections, so that none of its goroutines outlives a test.
var client = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// get fetches url and decodes its JSON into v, or stores its text if v is a *string.
func get(ctx context.Context, url string, v any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("X-Auth-Token", "admin")
	req.Header.Set("OpenStack-API-Version", "placement 1.39")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("GET %s: %s: %s", url, resp.Status, body)
	case v == nil:
		return nil
	}
	if text, ok := v.(*string); ok {
		*text = string(body)
		return nil
	}
	return json.Unmarshal(body, v)
}

// A status is the part of `schedule show -o json` that the tests read.
type status struct {
	ID, Name, State string
	Addresses       []string
}

// id returns the instance ID in the line that schedule prints on success.
func (c *cloud) id(notified string) string {
	c.t.Helper()
	host, id, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(notified), "NOTIFIED TARGET, "), ", OF INSTANCE ")
	if !ok || len(host) != 36 || len(id) != 36 {
		c.t.Fatalf("schedule printed %q, want NOTIFIED TARGET, host, OF INSTANCE instance", notified)
	}
	return id
}

// mustAnswer checks that the guest's web server returns the instance's name and ID, which the guest knows only from
// its metadata.
func (c *cloud) mustAnswer(address, name, id string) {
	c.t.Helper()
	want := "croft instance " + name + " " + id
	eventually(c.t, "the guest's web server answers", func(ctx context.Context) error {
		var text string
		if err := get(ctx, "http://"+address+"/", &text); err != nil {
			return err
		}
		if strings.TrimSpace(text) != want {
			return fmt.Errorf("it says %q, want %q", text, want)
		}
		return nil
	})
}

// domains lists the names of the domains that use a file of this cloud.
func (c *cloud) domains() []string {
	c.t.Helper()
	var list []string
	for _, name := range strings.Fields(libvirttest.Virsh(c.t, "list", "--all", "--name")) {
		if strings.HasPrefix(name, "croft-") && strings.Contains(libvirttest.Virsh(c.t, "dumpxml", name), c.dir) {
			list = append(list, name)
		}
	}
	return list
}

// store reads everything below /croft/ with etcd's own client.
func (c *cloud) store() map[string]string {
	c.t.Helper()
	kv, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + c.etcd}, DialTimeout: patience})
	if err != nil {
		c.t.Fatal(err)
	}
	defer kv.Close()
	resp, err := kv.Get(c.t.Context(), "/croft/", clientv3.WithPrefix())
	if err != nil {
		c.t.Fatal(err)
	}
	all := map[string]string{}
	for _, pair := range resp.Kvs {
		all[string(pair.Key)] = string(pair.Value)
	}
	return all
}

// files lists the files of the state directory, except etcd's, with word in their path.
func (c *cloud) files(word string) []string {
	c.t.Helper()
	var list []string
	err := filepath.WalkDir(c.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.Contains(strings.TrimPrefix(path, c.dir), word) {
			list = append(list, path)
		}
		return nil
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return list
}

// usages sums the claims on all providers.
func (c *cloud) usages() map[string]int {
	c.t.Helper()
	var providers struct {
		List []struct{ UUID string } `json:"resource_providers"`
	}
	base := "http://" + c.placement + "/resource_providers"
	if err := get(c.t.Context(), base, &providers); err != nil {
		c.t.Fatal(err)
	}
	if len(providers.List) != 1 {
		c.t.Fatalf("%d providers, want this host alone", len(providers.List))
	}
	var used struct{ Usages map[string]int }
	if err := get(c.t.Context(), base+"/"+providers.List[0].UUID+"/usages", &used); err != nil {
		c.t.Fatal(err)
	}
	return used.Usages
}

// nothingLeft checks that the instances, the only ones in the cloud, have left no domain, file, lease, claim or
// key.
func (c *cloud) nothingLeft(ids ...string) {
	c.t.Helper()
	if list := c.domains(); len(list) > 0 {
		c.t.Errorf("domains are left: %v", list)
	}
	for class, amount := range c.usages() {
		if amount != 0 {
			c.t.Errorf("%d of %s is still claimed", amount, class)
		}
	}
	store := c.store()
	for key, value := range store {
		for _, kind := range []string{"/instances/", "/names/", "/orders/", "/observed/"} {
			if strings.Contains(key, kind) {
				c.t.Errorf("key %s is left", key)
			}
		}
		if strings.Contains(key, "/quota/unsettled/") || strings.Contains(key, "/actions/") {
			continue // counted within a minute, or by the next request; who did what is kept
		}
		for _, id := range ids {
			if strings.Contains(key, id) || strings.Contains(value, id) {
				c.t.Errorf("key %s speaks of instance %s", key, id)
			}
		}
	}
	eventually(c.t, "dnsmasq has heard that the leases are over", func(context.Context) error {
		if leases := strings.TrimSpace(libvirttest.Virsh(c.t, "net-dhcp-leases", c.network)); leases != "" {
			return fmt.Errorf("DHCP leases are left:\n%s", leases)
		}
		return nil
	})
	for _, id := range ids {
		if list := c.files(id); len(list) > 0 {
			c.t.Errorf("files are left: %v", list)
		}
	}
}

// somethingThere checks that every method of nothingLeft detects a running instance, so that its checks prove
// something.
func (c *cloud) somethingThere(id string) {
	c.t.Helper()
	if list := c.domains(); !slices.Equal(list, []string{"croft-" + id}) {
		c.t.Errorf("domains %v, want that of %s", list, id)
	}
	if used := c.usages(); used["VCPU"] != 1 {
		c.t.Errorf("claimed is %v, want one machine", used)
	}
	store := c.store()
	for _, kind := range []string{"/instances/", "/names/", "/orders/", "/observed/"} {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(store)),
			func(key string) bool { return strings.Contains(key, kind) }) {
			c.t.Errorf("no key has %s in it", kind)
		}
	}
	if leases := libvirttest.Virsh(c.t, "net-dhcp-leases", c.network); strings.TrimSpace(leases) == "" {
		c.t.Error("there is no DHCP lease")
	}
	if len(c.files(id)) == 0 {
		c.t.Error("no file is its own")
	}
}

// show returns schedule's view of an instance.
func (c *cloud) show(idOrName string) status {
	c.t.Helper()
	var st status
	text := c.must("-o", "json", idOrName)
	if err := json.NewDecoder(bytes.NewBufferString(text)).Decode(&st); err != nil {
		c.t.Fatalf("schedule -o json printed no JSON: %v\n%s", err, text)
	}
	return st
}

// waitForState returns when the agent has observed the instance in one of states.
func (c *cloud) waitForState(id string, states ...string) {
	c.t.Helper()
	eventually(c.t, id+" becomes "+strings.Join(states, " or "), func(context.Context) error {
		state := c.show(id).State
		if !slices.Contains(states, state) {
			return fmt.Errorf("it is %q", state)
		}
		return nil
	})
}

// waitForConsole returns when the guest has printed the words on its serial console.
func (c *cloud) waitForConsole(name, words string) {
	c.t.Helper()
	eventually(c.t, "the console of "+name+" says "+words, func(context.Context) error {
		if text := c.must("console", name); !strings.Contains(text, words) {
			return fmt.Errorf("it says:\n%s", text)
		}
		return nil
	})
}
