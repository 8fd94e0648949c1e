package gate_test

import (
	"errors"
	"strings"
	"testing"

	"croft"
	"croft/trust/gate"
)

func TestAHostSharesNothingWithOthers(t *testing.T) {
	c, id := newCloud(t), croft.NewHostID()
	err := c.front.Client(t, id).EnsureProvider(t.Context(),
		croft.Provider{ID: id, Name: "h", Traits: []croft.Trait{"MISC_SHARES_VIA_AGGREGATE"}})
	if !errors.Is(err, gate.ErrRefused) {
		t.Errorf("got %v, want a refusal", err)
	}
}

func TestWhatHostsSayIsCleaned(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"a text stays as it is", "näme, of 3 \"words\"", "näme, of 3 \"words\""},
		{"what steers a terminal is taken out", "\x1b[2Jgone\r\nnew line\u009b", " [2Jgone  new line "},
		{"what turns the direction of writing is taken out", "a\u202eb\u200b", "ab"},
		{"bytes that are no text are marked", "a\xffb", "a\uFFFDb"},
		{"a long text is cut", gate.Longest + "more", gate.Longest},
		{"a long text is cut within no letter", gate.Longest[1:] + "ä", gate.Longest[1:] + "\uFFFD"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := gate.Clean(c.text); got != c.want {
				t.Errorf("got %.200q, want %.200q", got, c.want)
			}
		})
	}
}

func TestAHostsRecordIsCleaned(t *testing.T) {
	c, id := newCloud(t), croft.NewHostID()
	agent := c.front.Client(t, id)
	h := croft.Host{ID: id, Name: "a\x1b[31mb", Problems: make([]string, 1000), API: "https://192.0.2.1:8779"}
	if err := agent.PutHost(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	hosts, err := c.Registry.Hosts(t.Context(), id)
	if err != nil || strings.ContainsRune(hosts[id].Name, '\x1b') || len(hosts[id].Problems) > 64 {
		t.Errorf("got %+v, %v", hosts[id], err)
	}
	for _, h.API = range []string{"file:///etc/shadow", "http://192.0.2.1:8779", "https://user:password@192.0.2.1",
		"https:///"} {
		if err := agent.PutHost(t.Context(), h); croft.KindOf(err) != croft.Invalid {
			t.Errorf("got %v of %s, want that the address is refused", err, h.API)
		}
	}
}
