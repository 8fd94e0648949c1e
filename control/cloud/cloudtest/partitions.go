package cloudtest

import (
	"bytes"
	"encoding/json"
	"strings"

	"croft"
	"croft/control/federation"
)

// foreign is an export of another cloud, which has one host.
const foreign = `{"export":1,"partition":"11111111-1111-4111-8111-111111111111","name":"east","revision":4,` +
	`"time":"2026-01-02T03:04:05Z"}
{"kind":"host","row":{"id":"22222222-2222-4222-8222-222222222222","name":"host1"}}
{"rows":1,"sha256":"629562b230f8602e67e9e757de5c589ad67dc7b0b94d65ffc3311f0e4bb6a41c"}
`

func (s *suite) partitions() {
	p := s.Cloud.Partitions
	var own bytes.Buffer
	h, err := p.Export(s.ctx, "here", &own)
	s.must(err)
	if h.Name != "here" || h.Revision < 1 || !strings.Contains(own.String(), `"kind":"host","row":{"id":"`) ||
		!strings.Contains(own.String(), `"sha256":"`) {
		s.Errorf("exported %+v: %s", h, own.String())
	}
	_, err = p.Export(s.ctx, "a b", &own)
	s.is(err, croft.Invalid, "an export under a name that is none")
	_, _, err = p.Import(s.ctx, &own, "")
	s.is(err, croft.Invalid, "an import of home")
	_, _, err = p.Import(s.ctx, strings.NewReader(foreign[:len(foreign)/2]), "")
	s.is(err, croft.Invalid, "an import that was cut off")
	_, _, err = p.Import(s.ctx, strings.NewReader(strings.Replace(foreign, "host1", "host2", 1)), "")
	s.is(err, croft.Invalid, "an import that was altered")
	for _, wanted := range []bool{true, false} {
		shown, changed, err := p.Import(s.ctx, strings.NewReader(foreign), "")
		if err != nil || changed != wanted || shown.Alias != "east" || shown.Imported.Rows[federation.KindHost] != 1 {
			s.Errorf("imported %+v, changed %t, %v", shown, changed, err)
		}
	}
	_, _, err = p.Import(s.ctx, strings.NewReader(foreign), "home")
	s.is(err, croft.Invalid, "an import under the alias of home")
	all, err := p.List(s.ctx)
	s.must(err)
	if len(all) != 2 || !all[0].Home || all[0].ID != h.Partition || all[1].Alias != "east" {
		s.Errorf("listed %+v", all)
	}
	if found, err := p.Find(s.ctx, "east"); err != nil || found.ID != all[1].ID || found.Imported.Revision != 4 {
		s.Errorf("found %+v, %v", found, err)
	}
	var rows []string
	each := func(row json.RawMessage) error { rows = append(rows, string(row)); return nil }
	s.must(p.Rows(s.ctx, "east", federation.KindHost, each))
	s.must(p.Rows(s.ctx, "east", federation.KindInstance, each))
	if len(rows) != 1 || !strings.Contains(rows[0], `"host1"`) {
		s.Errorf("the rows are %s", rows)
	}
	s.is(p.Rows(s.ctx, "east", "thing", each), croft.Invalid, "rows of an unknown kind")
	s.is(p.Rows(s.ctx, "home", federation.KindHost, each), croft.Invalid, "rows of home")
	s.is(p.Rows(s.ctx, "west", federation.KindHost, each), croft.NotFound, "rows of an unknown partition")
	_, err = p.Remove(s.ctx, "home")
	s.is(err, croft.Invalid, "the removal of home")
	was, err := p.Remove(s.ctx, "east")
	if err != nil || was.ID != all[1].ID {
		s.Errorf("removed %+v, %v", was, err)
	}
	_, err = p.Find(s.ctx, "east")
	s.is(err, croft.NotFound, "a partition that was removed")
	_, err = p.Remove(s.ctx, "east")
	s.is(err, croft.NotFound, "the removal of one that was removed")
}
