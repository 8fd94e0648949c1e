package kill

import (
	"maps"
	"strings"
	"sync"

	"croft"
)

// storageName is the name of the storage that all hosts share.
const storageName = "nfs1"

// keepers is the number of users whose instances have data, which nobody else changes.
const keepers = 4

// isKept reports whether an instance is a keeper's.
func isKept(i croft.Instance) bool { return strings.HasPrefix(i.Name, "k") }

// disks is what the keepers know of the data on disks, by the UUID of an instance or of a volume.
type disks struct {
	mu    sync.Mutex
	all   map[string]*diskFact
	named map[string]*nameFact // volumes, snapshots, images and backups, by kind and name
}

// A diskFact is what a disk may have. Each write of a guest has a text of its own, and replaces all data of its disks.
type diskFact struct {
	may content
	// what it may have at any later time, because nobody knows when a command took effect
	loose content
	ever  content // everything that was written to it
	lost  int     // how often the instance had been lost before its last write
}

// content is a set of texts. The empty one is that of a disk to which nothing was written.
type content map[string]bool

// A nameFact is what commands said of a volume, a snapshot, an image or a backup.
type nameFact struct {
	kind, name string
	instance   string  // of a snapshot or backup: whose disks it has
	data       content // of a snapshot or backup: what it may have of the disk of the instance
	sizeGB     int64   // of a volume: at least
	created    bool    // an answer said so
	doomed     bool    // its removal was requested
	removed    bool    // its removal was acknowledged
}

func newDisks() *disks { return &disks{all: map[string]*diskFact{}, named: map[string]*nameFact{}} }

// change updates what is known of a disk.
func (d *disks) change(id string, do func(*diskFact)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	of, known := d.all[id]
	if !known {
		of = &diskFact{may: content{"": true}, loose: content{}, ever: content{}}
		d.all[id] = of
	}
	do(of)
}

// set records that a disk now has one of some texts.
func (d *disks) set(id string, to content) {
	d.change(id, func(f *diskFact) {
		f.may = maps.Clone(f.loose)
		maps.Copy(f.may, to)
	})
}

// loosen records that a disk may get one of some texts, at any time.
func (d *disks) loosen(id string, more content) {
	d.change(id, func(f *diskFact) {
		maps.Copy(f.may, more)
		maps.Copy(f.loose, more)
	})
}

// wrote records a write that a guest acknowledged, and how often its instance had been lost before.
func (d *disks) wrote(id, text string, lost int) {
	d.set(id, content{text: true})
	d.change(id, func(f *diskFact) { f.ever[text], f.lost = true, lost })
}

// name updates what is known of something with a name, which nothing else of its kind ever has.
func (d *disks) name(kind, name string, do func(*nameFact)) *nameFact {
	d.mu.Lock()
	defer d.mu.Unlock()
	of, known := d.named[kind+" "+name]
	if !known {
		of = &nameFact{kind: kind, name: name}
		d.named[kind+" "+name] = of
	}
	do(of)
	return of
}
