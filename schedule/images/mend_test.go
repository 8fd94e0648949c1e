package images

import (
	"reflect"
	"testing"
	"time"

	"croft"
)

func TestWhatAnImageNeeds(t *testing.T) {
	now := time.Now()
	a, b, c, d := croft.HostID("a"), croft.HostID("b"), croft.HostID("c"), croft.HostID("d")
	dead := &croft.Death{Begun: now, Declared: now}
	alive := croft.Host{Name: "h", Alive: true}
	ready := croft.Image{State: croft.ImageReady, Copies: []croft.HostID{a, b}}
	lost := croft.Image{State: croft.ImageLost, Copies: []croft.HostID{a}}
	pending := croft.Image{State: croft.ImagePending, Copies: []croft.HostID{a}, Created: now,
		Expires: now.Add(time.Hour)}
	saved := pending
	saved.Saved, saved.Created = "instance", now.Add(-2*startTime)
	published := ready
	published.Origin = "https://example.com/x"
	made := func(hosts ...croft.HostID) (all []croft.ImageCopy) {
		for _, h := range hosts {
			all = append(all, croft.ImageCopy{Host: h, Made: true})
		}
		return all
	}
	for _, test := range []struct {
		name   string
		image  croft.Image
		copies []croft.ImageCopy
		hosts  map[croft.HostID]croft.Host
		takers []croft.HostID
		want   remedy
	}{
		{"enough copies", ready, made(a, b), map[croft.HostID]croft.Host{a: alive, b: alive}, []croft.HostID{a, b, c},
			remedy{}},
		{"a silent host keeps its copy", ready, made(a, b), map[croft.HostID]croft.Host{a: alive, b: {}},
			[]croft.HostID{a, c}, remedy{}},
		{"a host that is only being fenced keeps its copy", ready, made(a, b), map[croft.HostID]croft.Host{a: alive,
			b: {Death: &croft.Death{Begun: now}}}, []croft.HostID{a, c}, remedy{}},
		{"a dead host is replaced", ready, made(a, b), map[croft.HostID]croft.Host{a: alive, b: {Death: dead}},
			[]croft.HostID{a, c}, remedy{drop: []croft.HostID{b}, add: c}},
		{"a forgotten host is replaced", ready, made(a, b), map[croft.HostID]croft.Host{a: alive},
			[]croft.HostID{a, d}, remedy{drop: []croft.HostID{b}, add: d}},
		{"a dead host is kept until another has the image", ready, made(b),
			map[croft.HostID]croft.Host{a: alive, b: {Death: dead}}, []croft.HostID{a, c}, remedy{}},
		{"no other host can get it", ready, made(a), map[croft.HostID]croft.Host{a: alive}, []croft.HostID{a},
			remedy{drop: []croft.HostID{b}}},
		{"all hosts are dead", ready, made(a, b), map[croft.HostID]croft.Host{a: {Name: "x", Death: dead},
			b: {Name: "y", Death: dead}}, []croft.HostID{c}, remedy{lose: "the only hosts that had it are gone, the " +
			"last one was y"}},
		{"with an origin it is fetched again", published, made(a, b), map[croft.HostID]croft.Host{}, []croft.HostID{c},
			remedy{lose: "the only hosts that had it are gone, the last one was b", add: c, origin: true}},
		{"a host that was lost is back", lost, made(a), map[croft.HostID]croft.Host{a: alive}, []croft.HostID{a},
			remedy{found: true}},
		{"an upload that takes too long", croft.Image{State: croft.ImagePending, Expires: now.Add(-time.Hour)}, nil,
			nil, nil, remedy{fail: "it was not completed in time"}},
		{"an upload", pending, nil, map[croft.HostID]croft.Host{a: alive}, []croft.HostID{a, b}, remedy{}},
		{"the host of an upload is dead", pending, nil, map[croft.HostID]croft.Host{a: {Name: "x", Death: dead}},
			[]croft.HostID{b}, remedy{fail: "host x, which was to get it, is gone"}},
		{"no snapshot was taken", saved, nil, map[croft.HostID]croft.Host{a: alive}, nil,
			remedy{fail: "the program that saved it ended before it had taken a snapshot"}},
		{"a failed image needs nothing", croft.Image{State: croft.ImageFailed, Copies: []croft.HostID{a}}, nil, nil,
			[]croft.HostID{b}, remedy{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := examine(test.image, test.copies, test.hosts, test.takers, now)
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}
