package cloudtest

import (
	"bytes"
	"encoding/json"
	"strings"

	"croft"
	"croft/control/api"
	"croft/control/federation"
)

// foreign is an export of another cloud, which has one host.
const foreign = `{"export":1,"partition":"11111111-1111-4111-8111-111111111111","name":"east","revision":4,` +
	`"time":"2026-01-02T03:04:05Z"}
{"kind":"host","row":{"id":"22222222-2222-4222-8222-222222222222","name":"host1"}}
{"rows":1,"sha256":"629562b230f8602e67e9e757de5c589ad67dc7b0b94d65ffc3311f0e4bb6a41c"}
`

func (s *suite) partitions() {
	c := s.Client
	var own bytes.Buffer
	h, err := c.ExportPartition(s.ctx, api.Export{Name: "here"}, &own)
	s.must(err)
	if h.Name != "here" || h.Revision < 1 || !strings.Contains(own.String(), `"kind":"host","row":{"id":"`) ||
		!strings.Contains(own.String(), `"sha256":"`) {
		s.Errorf("exported %+v: %s", h, own.String())
	}
	_, err = c.ExportPartition(s.ctx, api.Export{Name: "a b"}, &own)
	s.is(err, croft.Invalid, "an export under a name that is none")
	_, _, err = c.ImportPartition(s.ctx, api.Import{}, &own)
	s.is(err, croft.Invalid, "an import of home")
	_, _, err = c.ImportPartition(s.ctx, api.Import{}, strings.NewReader(foreign[:len(foreign)/2]))
	s.is(err, croft.Invalid, "an import that was cut off")
	_, _, err = c.ImportPartition(s.ctx, api.Import{},
		strings.NewReader(strings.Replace(foreign, "host1", "host2", 1)))
	s.is(err, croft.Invalid, "an import that was altered")
	for _, wanted := range []bool{true, false} {
		shown, changed, err := c.ImportPartition(s.ctx, api.Import{}, strings.NewReader(foreign))
		if err != nil || changed != wanted || shown.Alias != "east" || shown.Imported.Rows[federation.KindHost] != 1 {
			s.Errorf("imported %+v, changed %t, %v", shown, changed, err)
		}
	}
	_, _, err = c.ImportPartition(s.ctx, api.Import{As: "home"}, strings.NewReader(foreign))
	s.is(err, croft.Invalid, "an import under the alias of home")
	list, err := c.ListPartitions(s.ctx)
	s.must(err)
	all := list.Partitions
	if len(all) != 2 || !all[0].Home || all[0].ID != h.Partition || all[1].Alias != "east" {
		s.Errorf("listed %+v", all)
	}
	found, err := c.GetPartition(s.ctx, api.PartitionNamed{ID: "east"})
	if err != nil || found.ID != all[1].ID || found.Imported.Revision != 4 {
		s.Errorf("found %+v, %v", found, err)
	}
	rows := func(of string, kind federation.Kind) ([]json.RawMessage, error) {
		list, err := c.ListRows(s.ctx, api.RowsOfKind{PartitionNamed: api.PartitionNamed{ID: of}, Kind: kind})
		return list.Rows, err
	}
	if got, err := rows("east", federation.KindHost); err != nil || len(got) != 1 ||
		!strings.Contains(string(got[0]), `"host1"`) {
		s.Errorf("the hosts are %s, %v", got, err)
	}
	if got, err := rows("east", federation.KindInstance); err != nil || got == nil || len(got) != 0 {
		s.Errorf("the instances are %s, %v", got, err)
	}
	_, err = rows("east", "thing")
	s.is(err, croft.Invalid, "rows of an unknown kind")
	_, err = rows("home", federation.KindHost)
	s.is(err, croft.Invalid, "rows of home")
	_, err = rows("west", federation.KindHost)
	s.is(err, croft.NotFound, "rows of an unknown partition")
	_, err = c.RemovePartition(s.ctx, api.PartitionNamed{ID: "home"})
	s.is(err, croft.Invalid, "the removal of home")
	was, err := c.RemovePartition(s.ctx, api.PartitionNamed{ID: "east"})
	if err != nil || was.ID != all[1].ID {
		s.Errorf("removed %+v, %v", was, err)
	}
	_, err = c.GetPartition(s.ctx, api.PartitionNamed{ID: "east"})
	s.is(err, croft.NotFound, "a partition that was removed")
	_, err = c.RemovePartition(s.ctx, api.PartitionNamed{ID: "east"})
	s.is(err, croft.NotFound, "the removal of one that was removed")
}
