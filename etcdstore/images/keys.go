package images

import "croft"

// Keys builds the keys of the images of the catalog; it is the prefix of the partition. The list of all keys is in
// etcdstore.
type Keys string

func (k Keys) records() string                { return string(k) + "images/records/" }
func (k Keys) record(id croft.ImageID) string { return k.records() + string(id) }
func (k Keys) public() string                 { return string(k) + "images/public/" }
func (k Keys) allCopies() string              { return string(k) + "images/copies/" }
func (k Keys) copiesOn(h croft.HostID) string { return k.allCopies() + string(h) + "/" }
func (k Keys) sharedWith(p croft.Project) string {
	return string(k) + "images/shared/" + string(p) + "/"
}

func (k Keys) copyOn(h croft.HostID, id croft.ImageID) string { return k.copiesOn(h) + string(id) }

// Names returns the prefix of the names of a project's images.
func (k Keys) Names(p croft.Project) string { return string(k) + "images/names/" + string(p) + "/" }
