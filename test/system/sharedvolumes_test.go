package system

import (
	"context"
	"errors"
	"fmt"
	"os"

	"croft"
)

// sharedVolumes: every volume on the shared storage has its file there, and its lock belongs to the host of the
// instance that it is attached to; or to none, if it is attached to none. It adds the volumes to what may be on the
// storage.
func (w *world) sharedVolumes(ctx context.Context, want map[string]bool) (bad []string) {
	complain := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	all, err := w.store.Volumes.List(ctx, "")
	if err != nil {
		return []string{err.Error()}
	}
	for _, v := range all {
		if v.Storage == "" {
			continue
		}
		want[string(v.ID)] = true
		file, _ := w.fileOf(v)
		if _, err := os.Stat(file); v.MadeGB > 0 && !v.Removing && err != nil {
			complain("the file of volume %s on the shared storage: %v", v.ID, err)
		}
		inst := croft.Instance{}
		if v.Instance != "" {
			inst, err = w.store.Instances.Instance(ctx, v.Instance)
			if err != nil && !errors.Is(err, croft.NotFound) {
				complain("%v", err)
			}
		}
		holder := w.holder(v.ID.Consumer())
		switch {
		case w.leftToAbsent(v.ID.Consumer()):
		case v.Instance == "" && holder != "":
			complain("the lock of volume %s is host %s's, and it is attached to none", v.ID, holder)
		case inst.State == croft.StateScheduled && !w.unbuilt(inst) && !v.Detaching && !w.mayHold(inst, holder):
			complain("the lock of volume %s is host %q's, and it is attached on host %s", v.ID, holder, inst.Host)
		}
	}
	return bad
}
