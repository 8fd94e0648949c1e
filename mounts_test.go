package croft_test

import (
	"strings"
	"testing"

	"croft"
)

func TestMountsThatCannotBeAreRefused(t *testing.T) {
	data := croft.Mount{Volume: "data", Path: "/srv/data"}
	for what, c := range map[string][]croft.Mount{
		"another volume":  {{Volume: "logs", Path: "/srv"}},
		"the root":        {{Volume: "data", Path: "/"}},
		"no path":         {{Volume: "data"}},
		"relative":        {{Volume: "data", Path: "srv"}},
		"upwards":         {{Volume: "data", Path: "/srv/../etc"}},
		"a blank":         {{Volume: "data", Path: "/srv/a b"}},
		"a command":       {{Volume: "data", Path: "/srv/$(reboot)"}},
		"two lines":       {{Volume: "data", Path: "/srv\n/x"}},
		"unknown":         {{Volume: "data", Path: "/srv", Filesystem: "ntfs"}},
		"a volume twice":  {data, {Volume: "data", Path: "/srv/x"}},
		"a path twice":    {data, {Volume: "new", Path: "/srv/data"}},
		"a name too long": {{Volume: strings.Repeat("x", 21), Path: "/srv"}},
	} {
		err := croft.CheckMounts(c, []string{"data", "new", strings.Repeat("x", 21)})
		if croft.KindOf(err) != croft.Invalid {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := croft.CheckMounts([]croft.Mount{data, {Volume: "new", Path: "/x", Filesystem: "btrfs"}},
		[]string{"data", "new"}); err != nil {
		t.Error(err)
	}
}
