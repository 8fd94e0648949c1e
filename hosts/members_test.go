package hosts

import (
	"strings"
	"testing"

	"croft"
)

func TestWhatIsSaidOfServersOfEtcd(t *testing.T) {
	id := croft.NewHostID()
	silent, alive := Host{Host: croft.Host{ID: id}}, Host{Host: croft.Host{ID: id, Alive: true}}
	for _, r := range []struct {
		name   string
		hosts  []Host
		member croft.EtcdMember
		want   string // of the one problem; empty: no problem
	}{
		{"one that follows is in order", []Host{alive}, croft.EtcdMember{Host: id, Role: croft.MemberFollows}, ""},
		{"one that is missing where its host is off", []Host{silent},
			croft.EtcdMember{Host: id, Role: croft.MemberMissing}, "start croft up on it, or forget it"},
		{"one that is missing where its host runs", []Host{alive},
			croft.EtcdMember{Host: id, Role: croft.MemberMissing}, "let it join again"},
		{"one that is missing and on no record", nil, croft.EtcdMember{Host: id, Role: croft.MemberMissing},
			"it has not finished joining"},
		{"one of a machine that is no host", nil, croft.EtcdMember{Host: id, Role: croft.MemberFollows, Alone: true},
			""},
		{"one of such a machine that is missing", nil, croft.EtcdMember{Host: id, Role: croft.MemberMissing,
			Alone: true}, "start croft up on it, or forget it"},
	} {
		got := withMembers(r.hosts, []croft.EtcdMember{r.member})
		said := strings.Join(got[0].Problems, "; ")
		if len(got) != 1 || !strings.Contains(said, r.want) || r.want == "" && said != "" ||
			strings.Contains(said, ";") {
			t.Errorf("%s: %q, want one with %q", r.name, said, r.want)
		}
	}
}
