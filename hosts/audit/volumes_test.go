package audit

import (
	"maps"
	"slices"
	"testing"
	"time"

	"croft"
)

func TestVolumesAreComparedWithTheirClaimsAndFiles(t *testing.T) {
	const host, id = croft.HostID("h"), croft.VolumeID("v")
	healthy := croft.Volume{ID: id, Name: "data", Project: "lab", Host: host, SizeGB: 2, ClaimedGB: 2, MadeGB: 2}
	for name, c := range map[string]struct {
		change func(e *Evidence, v *croft.Volume)
		want   []Kind
	}{
		"a healthy volume": {func(*Evidence, *croft.Volume) {}, nil},
		"a request under way": {func(_ *Evidence, v *croft.Volume) {
			v.ClaimedGB, v.Session = 1, "alive"
		}, nil},
		"a request whose process died": {func(_ *Evidence, v *croft.Volume) {
			v.ClaimedGB, v.Session = 1, "dead"
		}, []Kind{AbandonedVolume}},
		"no claim": {func(e *Evidence, _ *croft.Volume) {
			e.Claims[host] = nil
		}, []Kind{UnclaimedVolume}},
		"another claim": {func(e *Evidence, _ *croft.Volume) {
			e.Claims[host][id.Consumer()] = croft.Resources{croft.DiskGB: 1}
		}, []Kind{UnclaimedVolume}},
		"no file": {func(e *Evidence, _ *croft.Volume) {
			e.Contents[host] = Contents{}
		}, []Kind{MissingVolume}},
		"not made yet": {func(e *Evidence, v *croft.Volume) {
			e.Contents[host], v.MadeGB = Contents{}, 0
		}, nil},
		"being removed": {func(e *Evidence, v *croft.Volume) {
			e.Contents[host], e.Claims[host], v.Removing = Contents{}, nil, true
		}, nil},
		"a file without a record": {func(e *Evidence, _ *croft.Volume) {
			e.Contents[host] = Contents{Volumes: []croft.VolumeID{id, "other"}}
		}, []Kind{StrayVolume}},
		"a claim without a record": {func(e *Evidence, _ *croft.Volume) {
			e.Claims[host]["other"] = croft.Resources{croft.DiskGB: 1}
		}, []Kind{LeakedClaim}},
		"a copy that arrives with a move": {func(e *Evidence, _ *croft.Volume) {
			e.Orders = []croft.Order{{Host: host, Instance: "i", Want: croft.WantArriving,
				Move: &croft.Move{Volumes: []croft.Volume{{ID: "other"}}}}}
			e.Instances = map[croft.InstanceID]croft.Instance{"i": {ID: "i", Copying: true, Moving: host, Host: "far"}}
			e.Only = host
			e.Claims[host]["other"] = croft.Resources{croft.DiskGB: 1}
			e.Contents[host] = Contents{Volumes: []croft.VolumeID{id, "other"}}
		}, nil},
		"a copy that was left behind by a move": {func(e *Evidence, _ *croft.Volume) {
			e.Orders = []croft.Order{{Host: host, Instance: "i", Want: croft.WantGone, Left: []croft.VolumeID{"other"}}}
			e.Instances = map[croft.InstanceID]croft.Instance{"i": {ID: "i", MovedFrom: host, Host: "far"}}
			e.Only = host
			e.Claims[host]["other"] = croft.Resources{croft.DiskGB: 1}
			e.Contents[host] = Contents{Volumes: []croft.VolumeID{id, "other"}}
		}, []Kind{UndoneOrder}},
		"a claim on another host": {func(e *Evidence, _ *croft.Volume) {
			e.Hosts["far"] = croft.Host{ID: "far", Alive: true}
			e.Claims["far"] = map[croft.InstanceID]croft.Resources{id.Consumer(): {croft.DiskGB: 2}}
		}, []Kind{UnclaimedVolume}},
		"a claim where its instance moves to": {func(e *Evidence, v *croft.Volume) {
			e.Hosts["far"], v.Instance = croft.Host{ID: "far", Alive: true}, "i"
			e.Instances = map[croft.InstanceID]croft.Instance{"i": {ID: "i", Moving: "far", Host: host}}
			e.Only = "far"
			e.Claims = map[croft.HostID]map[croft.InstanceID]croft.Resources{
				"far": {id.Consumer(): {croft.DiskGB: 2}}}
		}, nil},
		"on shared storage": {func(e *Evidence, v *croft.Volume) {
			v.Storage, e.Claims[host], e.Contents[host] = "s", nil, Contents{}
			e.Elsewhere = map[croft.InstanceID]croft.Resources{id.Consumer(): {croft.DiskGB: 2}}
		}, nil},
		"on shared storage, and claims from its keeper": {func(e *Evidence, v *croft.Volume) {
			v.Storage, e.Elsewhere = "s", map[croft.InstanceID]croft.Resources{}
		}, []Kind{UnclaimedVolume}},
		"on shared storage, whose claims were not read": {func(e *Evidence, v *croft.Volume) {
			v.Storage, e.Claims[host] = "s", nil
		}, nil},
		"on shared storage, with a keeper that was forgotten": {func(e *Evidence, v *croft.Volume) {
			e.Hosts, e.Claims, e.Contents = map[croft.HostID]croft.Host{}, nil, nil
			v.Storage, e.Elsewhere = "s", map[croft.InstanceID]croft.Resources{id.Consumer(): {croft.DiskGB: 2}}
		}, nil},
		"on shared storage, to be removed by a dead keeper": {func(e *Evidence, v *croft.Volume) {
			e.Hosts[host] = croft.Host{ID: host, Death: &croft.Death{Declared: time.Unix(1, 0)}}
			v.Storage, v.Removing, e.Claims[host], e.Contents = "s", true, nil, nil
		}, []Kind{AbandonedVolume}},
		"a host that was forgotten": {func(e *Evidence, _ *croft.Volume) {
			e.Hosts = map[croft.HostID]croft.Host{}
			e.Claims, e.Contents = nil, nil
		}, []Kind{LostVolume}},
	} {
		t.Run(name, func(t *testing.T) {
			v := healthy
			e := Evidence{Hosts: map[croft.HostID]croft.Host{host: {ID: host, Alive: true}},
				Sessions: map[string]bool{"alive": true},
				Claims: map[croft.HostID]map[croft.InstanceID]croft.Resources{
					host: {id.Consumer(): {croft.DiskGB: 2}}},
				Contents: map[croft.HostID]Contents{host: {Volumes: []croft.VolumeID{id}}}}
			c.change(&e, &v)
			e.Volumes = map[croft.VolumeID]croft.Volume{id: v}
			kinds := map[Kind]bool{}
			for _, d := range Compare(e) {
				kinds[d.Kind] = true
			}
			if got := slices.Sorted(maps.Keys(kinds)); !slices.Equal(got, c.want) {
				t.Errorf("found %v, want %v", got, c.want)
			}
		})
	}
}
