package system

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"croft"
	"croft/compute"
	"croft/compute/hypervisor/sim"
	"croft/compute/image"
	"croft/etcdstore"
	"croft/schedule/images"
)

// originPrefix is the beginning of the references of images that hosts fetch for the cloud's catalog.
const originPrefix = "/origin/"

// originImages has the images of simulated guests, and images of origins, which have files.
type originImages struct {
	sim.Images
	dir string
}

func (o originImages) Fetch(ctx context.Context, ref string, progress func(croft.Progress)) (compute.CachedImage,
	error) {
	name, is := strings.CutPrefix(ref, originPrefix)
	if !is {
		return o.Images.Fetch(ctx, ref, progress)
	}
	disk := make([]byte, 4096)
	copy(disk, []byte{0xeb, 0xfe}) // jumps to itself
	copy(disk[510:], []byte{0x55, 0xaa})
	copy(disk[512:], name)
	sum := sha256.Sum256(disk)
	path := filepath.Join(o.dir, name+".raw")
	if _, err := os.Stat(path); err == nil {
		return compute.CachedImage{Path: path, Format: "raw", VirtualSize: int64(len(disk)),
			Digest: hex.EncodeToString(sum[:])}, nil
	}
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return compute.CachedImage{}, err
	}
	f, err := os.CreateTemp(o.dir, ".fetch-*")
	if err != nil {
		return compute.CachedImage{}, err
	}
	_, err = f.Write(disk)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return compute.CachedImage{Path: path, Format: "raw", VirtualSize: int64(len(disk)),
		Digest: hex.EncodeToString(sum[:])}, err
}

func (o originImages) FetchPublic(ctx context.Context, ref string, progress func(croft.Progress)) (compute.CachedImage,
	error) {
	return o.Fetch(ctx, ref, progress)
}

// copyFiles returns the files of images of the catalog on a host.
func (m *machine) copyFiles() compute.CopyFiles {
	files, err := image.NewCopies(m.dir+"-catalog", 0)
	if err != nil {
		m.w.t.Fatal(err)
	}
	return sim.CopyFiles{CopyFiles: files}
}

// agentImages is an agent's view of the orders for copies, through its gate.
type agentImages struct {
	m    *machine
	gate *gate
	compute.Copies
}

func (a agentImages) MadeImage(ctx context.Context, h croft.HostID, id croft.ImageID, f croft.ImageFile) error {
	return a.gate.do("agent MadeImage", croft.InstanceID(id), func() error {
		return a.Copies.MadeImage(ctx, h, id, f)
	})
}

func (a agentImages) FailedImage(ctx context.Context, h croft.HostID, id croft.ImageID, why string,
	final bool) error {
	return a.gate.do("agent FailedImage", croft.InstanceID(id), func() error {
		return a.Copies.FailedImage(ctx, h, id, why, final)
	})
}

// ForgetImage also checks that the host has removed the file of the copy that it forgets.
func (a agentImages) ForgetImage(ctx context.Context, h croft.HostID, id croft.ImageID) error {
	if files, err := a.m.copyFiles().All(); err == nil && slices.Contains(files, id) {
		a.m.w.breach("images are where recorded: host%d has removed its copy of image %s, and has its file", a.m.n, id)
	}
	return a.gate.do("agent ForgetImage", croft.InstanceID(id), func() error {
		return a.Copies.ForgetImage(ctx, h, id)
	})
}

// catalog returns the requests for images of one process.
func (w *world) catalog(g *gate, store *etcdstore.Store) *images.Manager {
	return &images.Manager{Store: imageStore{g, store.Images}, Hosts: store.Registry, Snapshots: w.volumes(g, store),
		Instances: store.Instances, Log: slog.New(slog.DiscardHandler)}
}

// imageStore is the store of the images of such a process, through its gate.
type imageStore struct {
	gate *gate
	images.Store
}

func (s imageStore) write(point string, i croft.Image, do func() (croft.Image, error)) (croft.Image, error) {
	return through(s.gate, "images "+point, croft.InstanceID(i.ID), do)
}

func (s imageStore) Create(ctx context.Context, i croft.Image, first croft.ImageCopy) (croft.Image, error) {
	return s.write("Create", i, func() (croft.Image, error) { return s.Store.Create(ctx, i, first) })
}

func (s imageStore) Change(ctx context.Context, was, next croft.Image) (croft.Image, error) {
	return s.write("Change", was, func() (croft.Image, error) { return s.Store.Change(ctx, was, next) })
}

func (s imageStore) AddCopy(ctx context.Context, i croft.Image, c croft.ImageCopy) (croft.Image, error) {
	return s.write("AddCopy", i, func() (croft.Image, error) { return s.Store.AddCopy(ctx, i, c) })
}

func (s imageStore) DropCopies(ctx context.Context, was, next croft.Image, hosts ...croft.HostID) (croft.Image,
	error) {
	return s.write("DropCopies", was, func() (croft.Image, error) {
		return s.Store.DropCopies(ctx, was, next, hosts...)
	})
}

func (s imageStore) Remove(ctx context.Context, i croft.Image) error {
	return s.gate.do("images Remove", croft.InstanceID(i.ID), func() error { return s.Store.Remove(ctx, i) })
}

func (s imageStore) Start(ctx context.Context, c croft.ImageCopy, snapshot croft.VolumeID) error {
	return s.gate.do("images Start", croft.InstanceID(c.Image), func() error { return s.Store.Start(ctx, c, snapshot) })
}

// withImages runs do as one command of a user, which may die in the middle.
func (w *world) withImages(last int, do func(*images.Manager) error) error {
	g, store := w.gate(last), w.open()
	defer func() { _ = store.Close() }()
	defer g.late.Wait()
	return do(w.catalog(g, store))
}

// useImages does one random action of a user with images.
func (a *actor) useImages(ctx context.Context) {
	name := fmt.Sprintf("image-%d", a.rng.IntN(4))
	_ = a.withImages(a.lifetime(), func(m *images.Manager) error {
		i := croft.Image{Project: croft.DefaultProject, Name: name}
		var err error
		switch n := a.rng.IntN(8); {
		case n < 3:
			i.Origin, i.SizeBytes = originPrefix+name, 1<<20
			if _, err = m.Add(ctx, i); err == nil {
				a.tally.add("added an image")
			}
		case n < 6:
			st, some := a.status(ctx)
			if !some {
				return nil
			}
			a.data.mu.Lock()
			from := a.data.clock
			a.data.mu.Unlock()
			if i, err = m.Save(ctx, st, i, false); err == nil {
				a.tally.add("saved an instance as an image")
				if st.Instance.Spec.Ephemeral {
					return nil // each move makes its disk from the image
				}
				a.data.mu.Lock()
				a.data.saved[i.ID] = &captured{instance: st.Instance.ID, from: from}
				a.data.mu.Unlock()
			}
		default:
			if _, err = m.RemoveNamed(ctx, croft.DefaultProject, name); err == nil {
				a.tally.add("removed an image")
			}
		}
		return err
	})
}

// image picks the image of a request: mostly a plain one, or one of the catalog.
func (a *actor) image(ctx context.Context) string {
	if a.rng.IntN(8) == 0 {
		return missing
	}
	if !a.full || a.rng.IntN(3) != 0 {
		return simulated
	}
	all, err := a.store.Images.All(ctx)
	all = slices.DeleteFunc(all, func(i croft.Image) bool { return i.State != croft.ImageReady })
	i, some := pick(a.rng, all)
	if err != nil || !some {
		return simulated
	}
	a.tally.add("requested an instance of an image of the catalog")
	return i.Reference()
}

// unbuilt reports that a host may have no guest of an instance, because its image is missing.
func (w *world) unbuilt(inst croft.Instance) bool {
	if !croft.InCatalog(inst.Spec.Image) {
		return inst.Spec.Image == missing
	}
	id, _ := croft.CatalogImage(inst.Spec.Image)
	i, err := w.store.Images.Get(w.t.Context(), id)
	if err == nil && i.State == croft.ImageReady {
		return false
	}
	m := w.machineOrNil(inst.Host)
	if m == nil {
		return true
	}
	_, err = m.hv.Machine(inst.ID)
	return croft.KindOf(err) == croft.NotFound
}

// mayHaveFiles reports whether the host of an instance may have a directory of it: the image of one that is not built
// may have been found, and have gone.
func (w *world) mayHaveFiles(st croft.Status) bool {
	return w.isBuilt(st) || croft.InCatalog(st.Instance.Spec.Image)
}

// imagesAreWhereRecorded: every host that has a copy of an image, as the records say, has its file, with the data of
// the instance that it was saved from, and an image that is ready has a copy. See also agentImages.ForgetImage. Hosts
// keep files that they fetched for instances as a cache, also of images that were removed.
func (w *world) imagesAreWhereRecorded(ctx context.Context) (bad []string) {
	complain := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	all, err := w.store.Images.All(ctx)
	if err != nil {
		return []string{err.Error()}
	}
	for _, i := range all {
		copies, err := w.store.Images.Copies(ctx, i)
		if err != nil {
			complain("%v", err)
		}
		made := 0
		for _, c := range copies {
			m := w.machineOrNil(c.Host)
			if !c.Made || c.Removing || m == nil {
				continue
			}
			made++
			file, has := m.copyFiles().Get(i.ID)
			if !has || file.Digest != i.SHA256 {
				complain("image %s is recorded on host%d, which has the file %+v of it", i.ID, m.n, file)
				continue
			}
			bad = append(bad, w.savedData(i, file)...)
		}
		if i.State == croft.ImageReady && made == 0 && len(w.hosts) == len(w.machines) {
			complain("image %s is ready, and no host has it", i.ID)
		}
	}
	return bad
}

// savedData compares an image with the data of the instance that it was saved from.
func (w *world) savedData(i croft.Image, file compute.CachedImage) []string {
	w.data.mu.Lock()
	defer w.data.mu.Unlock()
	s := w.data.saved[i.ID]
	if s == nil || w.twice(s.instance) {
		return nil
	}
	disk, err := os.ReadFile(file.Path)
	if err != nil || len(disk) < 1024 {
		return []string{fmt.Sprintf("the file of image %s has %d bytes, %v", i.ID, len(disk), err)}
	}
	data := string(bytes.TrimRight(disk[512:1024], "\x00"))
	if s.until == 0 {
		s.until = w.data.clock
	}
	if may := w.data.captureOf(s, diskID(s.instance)); !may.has(data) {
		return []string{fmt.Sprintf("image %s, saved from %s, has %q, and may have %v", i.ID, s.instance, data, may)}
	}
	return nil
}

// removeImages lets users remove all images.
func (w *world) removeImages(ctx context.Context) error {
	all, err := w.store.Images.All(ctx)
	for _, i := range all {
		removed := w.withImages(0, func(m *images.Manager) error {
			_, err := m.RemoveNamed(ctx, i.Project, i.Name)
			return unless(err, croft.NotFound)
		})
		if err == nil {
			err = removed
		}
	}
	return err
}
