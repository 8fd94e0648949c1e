package forwarding

import (
	"fmt"
	"testing"

	"croft"
)

func TestAProjectLeavesTurnsForOthers(t *testing.T) {
	f := &Forwarding{requests: shares(), streams: shares()}
	take := func(p croft.Project, stream bool, most int) (ends []func()) {
		for range most {
			if end, ok := f.Turn(p, stream); ok {
				ends = append(ends, end)
			}
		}
		return ends
	}
	streams := take("anna", true, mostForwarded)
	if len(streams) != mostOfProject {
		t.Errorf("one project has %d streams, want %d", len(streams), mostOfProject)
	}
	if n := len(take("anna", false, 1)); n != 1 {
		t.Error("the streams of a project take the turns of its requests")
	}
	for i := range 20 {
		take(croft.Project(fmt.Sprint("hostile", i)), true, mostForwarded)
	}
	if n := len(take("berta", true, 2)); n != 1 {
		t.Errorf("a project without a stream gets %d among those of 21 hostile projects, want 1", n)
	}
	for _, end := range streams {
		end()
	}
	if n := len(take("anna", true, 1)); n != 1 {
		t.Error("a turn that ended is not free")
	}
}
