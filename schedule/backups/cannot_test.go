package backups

import (
	"strings"
	"testing"

	"croft"
)

func TestAnInstanceThatChangesIsNotBackedUpNorRestored(t *testing.T) {
	t.Parallel()
	able := &croft.Host{BackupKey: "key", Alive: true}
	for _, c := range []struct {
		name string
		st   croft.Status
		says string
	}{
		{"an instance at rest", croft.Status{Instance: croft.Instance{State: croft.StateScheduled}, Host: able}, ""},
		{"one that moves", croft.Status{Instance: croft.Instance{State: croft.StateScheduled, Moving: "other"},
			Host: able}, "it is being moved"},
		{"one that is restored", croft.Status{Instance: croft.Instance{State: croft.StateScheduled,
			Backup: &croft.FromBackup{Name: "b1", Generation: 2}}, Host: able}, "it is being restored from backup b1"},
	} {
		err := cannot(c.st)
		if (err == nil) != (c.says == "") || err != nil && (croft.KindOf(err) != croft.Conflict ||
			!strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
