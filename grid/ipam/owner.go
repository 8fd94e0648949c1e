package ipam

import (
	"path"
	"strconv"
	"strings"

	"croft"
)

// An Owner is the holder of leases: a slot of a job, or another thing with a name of the same form.
type Owner struct {
	Job  string `json:"job"` // parts joined by /, such as web/front@7
	Slot int    `json:"slot"`
}

func (o Owner) String() string { return o.Job + "/" + strconv.Itoa(o.Slot) }

// maxSlot is the largest slot.
const maxSlot = 999_999

// ParseOwner parses JOB/SLOT. The slot defaults to 0. Invalid.
func ParseOwner(text string) (Owner, error) {
	o := Owner{Job: text}
	if dir, last := path.Split(text); dir != "" && allDigits(last) {
		slot, err := strconv.Atoi(last)
		if err != nil || slot > maxSlot || strconv.Itoa(slot) != last {
			return o, croft.Errorf(croft.Invalid, "%q: a slot is a number from 0 to %d without zeros before it", text,
				maxSlot)
		}
		o = Owner{strings.TrimSuffix(dir, "/"), slot}
	}
	return o, o.check()
}

func allDigits(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

func (o Owner) check() error {
	parts := strings.Split(o.Job, "/")
	for _, part := range parts {
		name, instance, is := strings.Cut(part, "@")
		if !validName(name) || is && !validName(instance) || len(parts) > maxDepth || len(part) > 128 {
			return croft.Errorf(croft.Invalid,
				"%q is no name of a job: write names of a to z, 0 to 9 and . _ - joined "+
					"by /, such as web/front or web/front@7", o.Job)
		}
	}
	if o.Slot < 0 || o.Slot > maxSlot {
		return croft.Errorf(croft.Invalid, "slot %d of %s: give 0 to %d", o.Slot, o.Job, maxSlot)
	}
	return nil
}

// Compare orders owners by job and then by slot.
func (o Owner) Compare(other Owner) int {
	if c := strings.Compare(o.Job, other.Job); c != 0 {
		return c
	}
	return o.Slot - other.Slot
}
