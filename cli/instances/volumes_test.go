package instances

import (
	"testing"

	"croft"
	"croft/control/api"
	"croft/schedule"
)

// FuzzVolumes: whatever the flags say, a request has volumes with sound names and sizes, and mounts of these alone.
func FuzzVolumes(f *testing.F) {
	for _, text := range []string{"20G", "20G:data", "1T:data:/srv/data:xfs", "data:/srv/data", "data:/srv:", ":::"} {
		f.Add(text, text)
	}
	f.Fuzz(func(t *testing.T, volume, disk string) {
		var r api.InstanceRequest
		if err := (&asking{volumes: []string{volume}, disks: []string{disk}}).addVolumes(&r); err != nil {
			if croft.KindOf(err) != croft.Invalid {
				t.Fatalf("%v is no bad input", err)
			}
			return
		}
		names := append([]string{}, r.Volumes...)
		for _, d := range r.Disks {
			names = append(names, d.Name)
			if croft.CheckVolumeSize(d.SizeGB) != nil || d.Name != "" && schedule.CheckName(d.Name) != nil {
				t.Errorf("%q makes the disk %+v", disk, d)
			}
		}
		if err := croft.CheckMounts(r.Mounts, names); err != nil {
			t.Errorf("%q, %q: %v", volume, disk, err)
		}
	})
}
