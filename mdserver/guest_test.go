package mdserver

import (
	"strings"
	"testing"

	"croft"
)

func TestHostname(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"a label stays", "web-1", "web-1"},
		{"capitals become small", "Web1", "web1"},
		{"other characters become dashes", "my web_1.example", "my-web-1-example"},
		{"dashes do not begin or end it", "-_web_-", "web"},
		{"it ends after 63 characters", strings.Repeat("a", 80), strings.Repeat("a", 63)},
		{"not in a dash", strings.Repeat("a", 62) + "-b", strings.Repeat("a", 62)},
		{"nothing left gives the UUID's beginning", "日本", "vm-5d1b9c3e"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := Guest{ID: "5d1b9c3e-7b8e-4c0a-8e4e-0f4dbe7f3a11", Name: tt.in}
			if got := g.Hostname(); got != tt.want {
				t.Errorf("%q gives %q, want %q", tt.in, got, tt.want)
			}
		})
	}
}

func FuzzHostname(f *testing.F) {
	for _, s := range []string{"", "web-1", "日本", strings.Repeat("-", 99)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		h := Guest{ID: "5d1b9c3e-7b8e-4c0a-8e4e-0f4dbe7f3a11", Name: name}.Hostname()
		if len(h) == 0 || len(h) > 63 || h[0] == '-' || h[len(h)-1] == '-' ||
			strings.Trim(h, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			t.Errorf("%q gives %q, which is not a DNS label", name, h)
		}
	})
}

func TestImageName(t *testing.T) {
	for in, want := range map[string]string{
		"":                                 "unknown",
		"/var/lib/croft/guests/tiny.qcow2": "tiny.qcow2",
		"file:///srv/a.raw#sha256=00":      "a.raw",
		"https://u:p@images.example/x/debian.qcow2?sig=a/": "debian.qcow2",
	} {
		if got := (Guest{Image: in}).imageName(); got != want {
			t.Errorf("%q gives %q, want %q", in, got, want)
		}
	}
}

// FuzzFind: no path makes the router panic, and every child that a found directory lists is found by its
// name.
func FuzzFind(f *testing.F) {
	for _, p := range []string{"/", "", "//latest/meta-data/public-keys/0/", "/openstack/../latest", "/\x00",
		"latest/user-data/x"} {
		f.Add(p)
	}
	g := FromOrder(croft.Order{Instance: "5d1b9c3e-7b8e-4c0a-8e4e-0f4dbe7f3a11", Name: "web",
		Spec: croft.Spec{
			GuestSettings: croft.GuestSettings{Keys: []string{"ssh-ed25519 AAAA jo"}, UserData: []byte("x")}}})
	root := tree(g, "", func() []byte { return nil })
	f.Fuzz(func(t *testing.T, path string) {
		n, ok := root.find(path)
		if !ok {
			return
		}
		if body, mime := n.content(); len(body) == 0 || mime == "" {
			t.Errorf("%q is %q of type %q", path, body, mime)
		}
		if n.children == nil {
			return
		}
		for _, c := range n.children() {
			if again, ok := root.find(path + "/" + c.name); !ok || again.name != c.name {
				t.Errorf("%q lists %q and does not have it", path, c.name)
			}
		}
	})
}
