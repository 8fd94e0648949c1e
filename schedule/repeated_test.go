package schedule_test

import (
	"testing"

	"croft"
	"croft/schedule"
)

// parsed parses a valid query.
func parsed(t *testing.T, text string) schedule.Query {
	t.Helper()
	q, err := schedule.ParseQuery(text)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// TestARequestKnowsItsInstance: only an identical request counts as a repetition.
func TestARequestKnowsItsInstance(t *testing.T) {
	c := newCloud(t, 1)
	first := request(t, "web")
	first.ID, first.Tags, first.Keys = croft.NewInstanceID(), map[string]string{}, []string{}
	first.Query.Near = []croft.Near{{To: "host1", Soft: true}}
	d, err := c.Request(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	inst := d.Instance
	inst.State, inst.Generation = croft.StateDestroying, 7
	for _, test := range []struct {
		name   string
		change func(*schedule.Request)
		want   bool
	}{
		{"the same", func(*schedule.Request) {}, true},
		{"missing lists are empty lists", func(r *schedule.Request) { r.Tags, r.Keys = nil, nil }, true},
		{"defaults that are spelled out", func(r *schedule.Request) {
			r.Metadata, r.IMDS, r.Restart = croft.MetadataAuto, croft.IMDSOptional, croft.RestartOnFailure
		}, true},
		{"another restart policy", func(r *schedule.Request) { r.Restart = croft.RestartNever }, false},
		{"another policy", func(r *schedule.Request) { r.Policy = schedule.Spread }, true},
		{"another ID", func(r *schedule.Request) { r.ID = croft.NewInstanceID() }, false},
		{"another name", func(r *schedule.Request) { r.Name = "db" }, false},
		{"another project", func(r *schedule.Request) { r.Project = "other" }, false},
		{"another image", func(r *schedule.Request) { r.Image += "2" }, false},
		{"more memory", func(r *schedule.Request) { r.Query = parsed(t, "VCPU:1,MEMORY_MB:512,DISK_GB:1") }, false},
		{"a trait besides", func(r *schedule.Request) {
			r.Query = parsed(t, r.Query.Encode()+"&required=HW_CPU_X86_AVX2")
		}, false},
		{"near to something else", func(r *schedule.Request) {
			r.Query.Near = []croft.Near{{To: "host2", Soft: true}}
		}, false},
		{"near to nothing", func(r *schedule.Request) { r.Query.Near = nil }, false},
		{"a volume besides", func(r *schedule.Request) { r.Volumes = []string{"data"} }, false},
		{"a new disk besides", func(r *schedule.Request) { r.Disks = []croft.NewDisk{{SizeGB: 1}} }, false},
		{"from a backup", func(r *schedule.Request) { r.Backup = &croft.FromBackup{} }, false},
		{"a request that is wrong", func(r *schedule.Request) { r.Image = "" }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			again := first
			test.change(&again)
			if got := again.Wants(inst); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
