// Package images manages the images of the cloud's catalog: it chooses the hosts that get copies of an image, receives
// uploads, and sees to it that each image has enough copies. A process that dies in between leaves a record from which
// Mend continues or gives the image up.
package images

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/schedule"
)

// Store stores the catalog. Every change compares the record that it is based on. Conflict: it has changed.
type Store interface {
	// Get returns an image. NotFound.
	Get(ctx context.Context, id croft.ImageID) (croft.Image, error)
	// All returns all images, by project and name.
	All(ctx context.Context) ([]croft.Image, error)
	// Find returns the image that a name or UUID means for a project of this identity, see NameFor. NotFound.
	Find(ctx context.Context, p croft.Project, id croft.ProjectID, name string) (croft.Image, error)
	// Usable returns the images that a project of this identity may use: its own ones, then those that are shared with
	// it, then the public ones.
	Usable(ctx context.Context, p croft.Project, id croft.ProjectID) ([]croft.Image, error)
	// Create writes the record of an image and the order for its first copy, and charges the project. Conflict: the
	// name is taken. OverQuota. Unavailable: the host takes no orders.
	Create(ctx context.Context, i croft.Image, first croft.ImageCopy) (croft.Image, error)
	// Change writes the next version of an image. Conflict also: the name is that of another public image.
	Change(ctx context.Context, was, next croft.Image) (croft.Image, error)
	// Copies returns the orders for the copies of an image.
	Copies(ctx context.Context, i croft.Image) ([]croft.ImageCopy, error)
	// AddCopy orders a copy on a further host.
	AddCopy(ctx context.Context, i croft.Image, c croft.ImageCopy) (croft.Image, error)
	// DropCopies writes the next version of an image without copies on some hosts, and orders their removal.
	DropCopies(ctx context.Context, was, next croft.Image, hosts ...croft.HostID) (croft.Image, error)
	// Remove removes an image, and orders the removal of all copies.
	Remove(ctx context.Context, i croft.Image) error
	// Complete records that all chunks of an upload were sent.
	Complete(ctx context.Context, c croft.ImageCopy) error
	// Start gives a host that is to save an image the snapshot to save it from.
	Start(ctx context.Context, c croft.ImageCopy, snapshot croft.VolumeID) error
	// HostCopies returns the orders for copies on a host; without a host, on all.
	HostCopies(ctx context.Context, host croft.HostID) ([]croft.ImageCopy, error)
	// ForgetHost removes the orders to remove copies on a host that was forgotten.
	ForgetHost(ctx context.Context, host croft.HostID) error
}

// Snapshots takes snapshots of instances, and removes them.
type Snapshots interface {
	CreateSnapshot(ctx context.Context, st croft.Status, name string) (croft.Volume, error)
	FindSnapshot(ctx context.Context, inst croft.Instance, name string) (croft.Volume, error)
	RemoveSnapshot(ctx context.Context, inst croft.Instance, name string) (croft.Volume, error)
}

// Instances is the read access to instances.
type Instances interface {
	// FindByID returns the instance with this ID. NotFound.
	FindByID(ctx context.Context, id croft.InstanceID) (croft.Status, error)
}

// Uploads sends chunks of uploads to hosts. Unavailable: the host does not answer.
type Uploads interface {
	// Received returns how many bytes of an upload are durable at the host.
	Received(ctx context.Context, host croft.Host, id croft.ImageID) (int64, error)
	// Send appends a chunk, and returns how many bytes are durable then. Conflict: at is not the number of bytes that
	// were.
	Send(ctx context.Context, host croft.Host, id croft.ImageID, at int64, chunk io.Reader) (int64, error)
}

// Manager carries out requests about images. It keeps no state. All fields are required, Snapshots, Instances and
// Uploads only by the methods that use them.
type Manager struct {
	Store
	Hosts     schedule.Registry
	Snapshots Snapshots
	Instances Instances
	Uploads   Uploads
	Log       *slog.Logger
}

// pendingTime is how long an image may be pending.
const pendingTime = 24 * time.Hour

// Add adds an image: with an origin, from where a host fetches it, else from an upload of SizeBytes bytes, which have
// the checksum SHA256. SizeBytes is the maximum of an image with an origin. An upload that is to be converted is
// charged for ChargedGB, the maximum of the result, or for its own size if that is more. Conflict: the name is taken.
// OverQuota. Invalid. Unavailable: no host takes orders.
func (m *Manager) Add(ctx context.Context, i croft.Image) (croft.Image, error) {
	task := croft.ImageFetch
	if i.Origin == "" {
		task = croft.ImageUpload
	}
	if task == croft.ImageUpload && i.SHA256 == "" {
		return i, croft.Errorf(croft.Invalid, "add image %s: an upload needs the SHA-256 of the file", i.Name)
	}
	hosts, err := m.takers(ctx)
	if err != nil {
		return i, fmt.Errorf("add image %s: %w", i.Name, err)
	}
	for _, host := range hosts {
		var made croft.Image
		if made, err = m.create(ctx, i, croft.ImageCopy{Host: host, Task: task}); err == nil {
			return made, nil
		}
		if !errors.Is(err, croft.Unavailable) {
			break
		}
	}
	return i, fmt.Errorf("add image %s: %w", i.Name, err)
}

// create completes and writes the records of an image and its first copy.
func (m *Manager) create(ctx context.Context, i croft.Image, c croft.ImageCopy) (croft.Image, error) {
	if err := schedule.CheckName(i.Name); err != nil {
		return i, err
	}
	if i.SizeBytes < 1 || i.SizeBytes > croft.MaxImageBytes {
		return i, croft.Errorf(croft.Invalid, "an image has 1 to %d bytes, not %d", int64(croft.MaxImageBytes),
			i.SizeBytes)
	}
	i.ID, i.State, i.Key = croft.NewImageID(), croft.ImagePending, newKey()
	i.Created = time.Now().UTC()
	i.Expires = i.Created.Add(pendingTime)
	most := croft.ImageGB(i.SizeBytes)
	if i.Convert {
		most = max(most, i.ChargedGB)
		c.Convert, c.MostBytes = true, most<<30
	}
	i.ChargedGB = most
	c.Image, c.Key, c.Origin, c.Public, c.SHA256, c.Format, c.SizeBytes = i.ID, i.Key, i.Origin, i.Restricted, i.SHA256,
		i.Format, i.SizeBytes
	made, err := m.Store.Create(ctx, i, c)
	if err == nil {
		m.Log.Info("image ordered", "image", made.ID, "project", made.Project, "name", made.Name, "host", c.Host)
	}
	return made, err
}

// newKey returns the secret of an image.
func newKey() string {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	return hex.EncodeToString(secret)
}

// takers returns the hosts that can get copies of images, in random order. Unavailable: no host can.
func (m *Manager) takers(ctx context.Context) ([]croft.HostID, error) {
	hosts, err := m.Hosts.Hosts(ctx)
	var ids []croft.HostID
	for id, h := range hosts {
		if takes(h) {
			ids = append(ids, id)
		}
	}
	if err == nil && len(ids) == 0 {
		err = croft.Errorf(croft.Unavailable, "no host takes images now: start an agent, or enable a drained host")
	}
	mathrand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	return ids, err
}

// takes reports whether a host can get copies of images.
func takes(h croft.Host) bool { return h.Alive && !h.Drained && h.Death == nil && h.Images }

// Save makes an image from the root disk of an instance, by a snapshot of it that is removed afterwards. Conflict: the
// name is taken, or the instance cannot be captured now. NoCapacity: its host has no room for the snapshot. OverQuota.
// generalize: without what tells machines apart.
func (m *Manager) Save(ctx context.Context, st croft.Status, i croft.Image, generalize bool) (croft.Image, error) {
	what := fmt.Sprintf("save instance %s as image %s", st.Instance.Name, i.Name)
	if st.Host == nil || !takes(*st.Host) && !st.Host.Drained {
		return i, croft.Errorf(croft.Unavailable, "%s: its host is silent", what)
	}
	// Tables and partly used clusters make the file a little larger than the disk.
	i.SizeBytes = (st.Instance.Spec.Resources[croft.DiskGB] + 1) << 30
	i.Saved = st.Instance.ID
	made, err := m.create(ctx, i, croft.ImageCopy{Host: st.Instance.Host, Task: croft.ImageSave, Instance: i.Saved,
		Generalize: generalize})
	if err != nil {
		return i, fmt.Errorf("%s: %w", what, err)
	}
	started, err := m.startSaving(ctx, st, made)
	if err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
		defer cancel()
		if now, failed := m.Get(undo, made.ID); failed == nil && now.CreateRevision == made.CreateRevision {
			_ = m.Remove(undo, now) // Mend gives it up otherwise
		}
		return i, fmt.Errorf("%s: %w", what, err)
	}
	return started, nil
}

// undoTime is the timeout of undoing a request that failed.
const undoTime = 5 * time.Second

// snapshotName is the name of the snapshot from which an image is saved.
func snapshotName(i croft.Image) string { return "image-" + string(i.ID)[:8] }

// startSaving takes the snapshot for an image, notes it, and lets the host save the image.
func (m *Manager) startSaving(ctx context.Context, st croft.Status, i croft.Image) (croft.Image, error) {
	s, err := m.Snapshots.CreateSnapshot(ctx, st, snapshotName(i))
	if err != nil {
		return i, err
	}
	next := i
	next.Snapshot = s.ID
	if next, err = m.Change(ctx, i, next); err == nil {
		var copies []croft.ImageCopy
		if copies, err = m.Copies(ctx, next); err == nil && len(copies) == 1 {
			err = m.Start(ctx, copies[0], s.ID)
		}
	}
	if err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
		defer cancel()
		_, _ = m.Snapshots.RemoveSnapshot(undo, st.Instance, s.Name) // it stays listed as a snapshot otherwise
	}
	return next, err
}

// NameFor returns the name that an image has for a project that may use it. An image that another project shares has
// the name NAME@PROJECT, since otherwise that project could choose what a name means here.
func NameFor(i croft.Image, p croft.Project) string {
	if i.Project == p || i.Public {
		return i.Name
	}
	return i.Name + "@" + string(i.Project)
}

// Own returns a project's own image. NotFound.
func (m *Manager) Own(ctx context.Context, p croft.Project, name string) (croft.Image, error) {
	i, err := m.Find(ctx, p, "", name)
	if err == nil && i.Project != p {
		err = croft.Errorf(croft.NotFound, "project %s has no image %.80q of its own in the cloud's catalog", p, name)
	}
	return i, err
}

// IsName reports whether a request names an image by a name, not by an address.
func IsName(image string) bool { return !strings.ContainsAny(image, "/:#") }

// GuessArch returns the architecture that the name or the address of an image says; empty: none, or several.
func GuessArch(text string) croft.Arch {
	isEnd := func(r rune) bool { return strings.ContainsRune("/-._ ?&=#:", r) }
	words := strings.FieldsFunc(strings.ToLower(text), isEnd)
	var found croft.Arch
	for i, word := range words {
		var arch croft.Arch
		switch {
		case word == "arm64" || word == "aarch64":
			arch = croft.ArchAArch64
		case word == "amd64" || word == "x64" || word == "64" && i > 0 && words[i-1] == "x86": // x86_64
			arch = croft.ArchX86
		default:
			continue
		}
		if found != "" && found != arch {
			return ""
		}
		found = arch
	}
	return found
}

// Catalog returns the reference of the image that a name means for a project in the cloud's catalog; without a project,
// of a public image. NotFound: none. Nil: there is no catalog.
type Catalog func(ctx context.Context, p croft.Project, name string) (string, error)

// Look is the catalog for any word that names an image. False: the catalog has none of that name.
func (c Catalog) Look(ctx context.Context, p croft.Project, word string) (ref string, has bool, err error) {
	if c == nil || !IsName(word) {
		return "", false, nil
	}
	ref, err = c(ctx, p, word)
	if croft.KindOf(err) == croft.NotFound {
		return "", false, nil
	}
	return ref, true, err
}

// again repeats a change of a project's image until no other request interferes.
func (m *Manager) again(ctx context.Context, p croft.Project, name string, do func(croft.Image) (croft.Image, error)) (
	croft.Image, error) {
	const tries = 10
	var i croft.Image
	var err error
	for range tries {
		if i, err = m.Own(ctx, p, name); err != nil {
			return i, err
		}
		now, failed := do(i)
		if failed == nil {
			return now, nil
		}
		latest, gone := m.Get(ctx, i.ID)
		if err = failed; !errors.Is(err, croft.Conflict) || gone != nil || latest.Revision == i.Revision {
			return i, err
		}
	}
	return i, err
}

// Update changes an image of a project. Conflict: there is another public image of its name.
func (m *Manager) Update(ctx context.Context, p croft.Project, name string, change func(*croft.Image) error) (
	croft.Image, error) {
	return m.again(ctx, p, name, func(i croft.Image) (croft.Image, error) {
		next := i
		next.Shares = slices.Clone(i.Shares)
		if err := change(&next); err != nil {
			return i, err
		}
		if len(next.Shares) > croft.MaxImageShares {
			return i, croft.Errorf(croft.Invalid, "an image can be shared with at most %d projects: make it public, which "+
				"operators can", croft.MaxImageShares)
		}
		return m.Change(ctx, i, next)
	})
}

// RemoveNamed removes an image of a project. Guests that were made from it keep their disks.
func (m *Manager) RemoveNamed(ctx context.Context, p croft.Project, name string) (croft.Image, error) {
	return m.again(ctx, p, name, func(i croft.Image) (croft.Image, error) {
		if err := m.dropSnapshot(ctx, i); err != nil {
			return i, err
		}
		return i, m.Remove(ctx, i)
	})
}

// upload returns the order for the upload of a project's image, and its host. Conflict: no upload is going on.
func (m *Manager) upload(ctx context.Context, p croft.Project, name string) (i croft.Image, c croft.ImageCopy,
	h croft.Host, err error) {
	if i, err = m.Own(ctx, p, name); err != nil {
		return i, c, h, err
	}
	copies, err := m.Copies(ctx, i)
	if err != nil {
		return i, c, h, err
	}
	if i.State != croft.ImagePending || len(copies) != 1 || copies[0].Task != croft.ImageUpload {
		return i, c, h, croft.Errorf(croft.Conflict, "image %s is %s, and not being uploaded", i.Name, i.State)
	}
	c = copies[0]
	hosts, err := m.Hosts.Hosts(ctx, c.Host)
	if h = hosts[c.Host]; err == nil && !h.Alive {
		err = croft.Errorf(croft.Unavailable, "the host that has the beginning of image %s is silent: wait until it "+
			"returns, or remove the image and begin again", i.Name)
	}
	return i, c, h, err
}

// Received returns how far the upload of a project's image is.
func (m *Manager) Received(ctx context.Context, p croft.Project, name string) (i croft.Image, n int64, err error) {
	i, c, h, err := m.upload(ctx, p, name)
	if err != nil {
		return i, 0, err
	}
	if c.Complete {
		return i, i.SizeBytes, nil
	}
	n, err = m.Uploads.Received(ctx, h, i.ID)
	return i, n, err
}

// Send appends a chunk to the upload of a project's image, and returns how far it is then. Conflict: at is another
// position than that up to which bytes have arrived, or no upload is going on.
func (m *Manager) Send(ctx context.Context, p croft.Project, name string, at int64, chunk io.Reader) (i croft.Image,
	n int64, err error) {
	i, c, h, err := m.upload(ctx, p, name)
	if err == nil && c.Complete {
		err = croft.Errorf(croft.Conflict, "the upload of image %s is complete", i.Name)
	}
	if err != nil {
		return i, 0, err
	}
	n, err = m.Uploads.Send(ctx, h, i.ID, at, chunk)
	return i, n, err
}

// Finish orders the verification of an upload. Conflict: bytes are missing.
func (m *Manager) Finish(ctx context.Context, p croft.Project, name string) (croft.Image, error) {
	if i, err := m.Own(ctx, p, name); err == nil && i.State != croft.ImagePending && i.Origin == "" {
		return i, nil // an earlier request did it
	}
	i, c, h, err := m.upload(ctx, p, name)
	if err != nil || c.Complete {
		return i, err
	}
	n, err := m.Uploads.Received(ctx, h, i.ID)
	if err != nil {
		return i, err
	}
	if n < i.SizeBytes {
		return i, croft.Errorf(croft.Conflict, "the upload of image %s has %d of %d bytes: send the rest first", i.Name, n,
			i.SizeBytes)
	}
	return i, m.Complete(ctx, c)
}
