package compute

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"croft"
	"croft/compute/diskcopy"
	"croft/internal/connlimit"
	"croft/internal/httpapi"
	"croft/internal/plain"
	"croft/internal/wording"
)

// copyStall is how long a host may send nothing of an image before the next host is asked.
const copyStall = 30 * time.Second

// mostSends is the number of hosts that fetch images from this one at the same time. Others ask another host.
const mostSends = 8

// imageCopies is the part of an agent that has copies of images of the cloud's catalog.
type imageCopies struct {
	known sync.Map // keys are the images that the host is ordered to have a copy of
	// keys are the images whose orders wait for a snapshot
	awaited sync.Map

	mu     sync.Mutex
	saving map[croft.VolumeID]context.CancelFunc // by the snapshot from which an image is being saved
	// the latest request that sends a chunk of an image
	receiving map[croft.ImageID]*reception

	sends chan struct{} // one token per image that is being sent

	failed sync.Map // the last failure of the orders for copies, by image: failure
}

// failure describes an order for a copy whose passes have failed since a time; a later resync repeats it.
type failure struct {
	order   croft.ImageCopy // without Error and Revision
	since   time.Time       // the first failure without progress after it
	at      time.Time       // the latest failure
	fetched int64           // the most bytes that have arrived
	final   bool            // it is not expected to succeed
}

// originTime is how long an image is asked for at an origin that does not give any more of it.
const originTime = 15 * time.Minute

// retryPause is how long an order for a copy that failed is left alone: the agent's own record of a failure wakes it.
const retryPause = 5 * time.Second

// unnoted returns an order without what the agent notes in it.
func unnoted(c croft.ImageCopy) croft.ImageCopy {
	c.Error, c.Revision = "", 0
	return c
}

// failureOf returns the failure of an order, if it is still the same one.
func (a *Agent) failureOf(c croft.ImageCopy) (f failure, is bool) {
	if last, known := a.copiesOf.failed.Load(c.Image); known {
		f = last.(failure)
	}
	return f, f.order == unnoted(c)
}

// hasJustFailed reports whether an order was tried a moment ago, and is still the same one.
func (a *Agent) hasJustFailed(c croft.ImageCopy) bool {
	f, is := a.failureOf(c)
	return is && time.Since(f.at) < retryPause
}

// failedAgain describes the failures of an order after a further one. first: it did not fail before.
func (a *Agent) failedAgain(c croft.ImageCopy, fetched int64) (f failure, first bool) {
	f, is := a.failureOf(c)
	now := time.Now()
	if !is {
		f = failure{order: unnoted(c), since: now}
	}
	if fetched > f.fetched {
		f.since, f.fetched = now, fetched
	}
	f.at = now
	return f, !is
}

// keeps reports whether the host is ordered to have a copy of an image.
func (a *Agent) keeps(id croft.ImageID) bool {
	_, is := a.copiesOf.known.Load(id)
	return is
}

// watchImages wakes the copies of images that the host is ordered to have as their orders change, until ctx ends.
func (a *Agent) watchImages(ctx context.Context) {
	if a.Copies == nil {
		return
	}
	_ = a.Copies.WatchImages(ctx, a.Host.ID, func(id croft.ImageID) {
		a.copiesOf.known.Store(id, true)
		a.imageWorkers.Wake(ctx, id)
	})
}

// wakeImages wakes all copies that are known.
func (a *Agent) wakeImages(ctx context.Context) {
	a.copiesOf.known.Range(func(id, _ any) bool {
		a.imageWorkers.Wake(ctx, id.(croft.ImageID))
		return true
	})
}

// lookAgainAtImages wakes the copies whose orders wait for a snapshot.
func (a *Agent) lookAgainAtImages(ctx context.Context) {
	a.copiesOf.awaited.Range(func(id, _ any) bool {
		a.copiesOf.awaited.Delete(id)
		a.imageWorkers.Wake(ctx, id.(croft.ImageID))
		return true
	})
}

// passImage does what the order for a copy of an image wants. The workers run at most one per image at a time; fetches
// for instances take turns with it.
func (a *Agent) passImage(ctx context.Context, id croft.ImageID) {
	if !a.locked.Load() {
		return
	}
	c, err := a.Copies.ImageCopy(ctx, a.Host.ID, id)
	switch {
	case errors.Is(err, croft.NotFound):
		a.copiesOf.known.Delete(id)
		a.copiesOf.failed.Delete(id)
		return
	case err != nil:
		a.logUnless(ctx, err, "read the order for a copy of an image")
		return
	case a.hasJustFailed(c):
		return
	}
	var fetched int64 // bytes of the origin
	if c.Removing {
		a.stopSaving(c.Snapshot)
		err = a.removeCopy(ctx, id)
	} else {
		err = a.makeCopy(ctx, c, func(p croft.Progress) { fetched = max(fetched, p.Done) })
	}
	if err == nil || ctx.Err() != nil {
		a.copiesOf.failed.Delete(id)
		return
	}
	f, first := a.failedAgain(c, fetched)
	why := strings.TrimSpace(plain.Cut(err.Error(), plain.Longest))
	final := isFinal(err) || errors.Is(err, croft.Conflict) ||
		c.Task != croft.ImageCopied && errors.Is(err, croft.NoCapacity)
	if c.Task == croft.ImageFetch && !c.Made && f.at.Sub(f.since) >= originTime {
		why = strings.TrimSpace(plain.Cut(fmt.Sprintf("its origin gave nothing more for %s: %v",
			wording.Duration(originTime), err), plain.Longest))
		final = true
	}
	if first || final && !f.final { // the order has the latest error
		a.Log.Warn("the order for a copy of an image is not carried out", "image", id, "host", a.Host.ID, "final",
			final, "err", err)
	}
	f.final = final
	a.copiesOf.failed.Store(id, f)
	if err := a.Copies.FailedImage(ctx, a.Host.ID, id, why, final); err != nil {
		a.logUnless(ctx, err, "note why there is no copy of an image")
	}
}

func (a *Agent) removeCopy(ctx context.Context, id croft.ImageID) error {
	end, err := a.imageTurns.Take(ctx, id)
	if err != nil {
		return err
	}
	defer end()
	if err := a.CopyFiles.Remove(id); err != nil {
		return err
	}
	return a.Copies.ForgetImage(ctx, a.Host.ID, id)
}

// makeCopy gets the copy that an order wants, and records it. progress is called as bytes arrive from the origin.
func (a *Agent) makeCopy(ctx context.Context, c croft.ImageCopy, progress func(croft.Progress)) error {
	// A file that was converted is not the one of the order, and only this host can have made it.
	if img, have := a.CopyFiles.Get(c.Image); have && (c.SHA256 == "" || c.Convert || img.Digest == c.SHA256) {
		if c.Made {
			return nil
		}
		return a.madeCopy(ctx, c.Image, img)
	}
	task := c.Task
	if c.Made { // its file is lost
		task = croft.ImageCopied
	}
	switch task {
	case croft.ImageUpload:
		return a.admitUpload(ctx, c)
	case croft.ImageFetch:
		return a.fetchOrigin(ctx, c, progress)
	case croft.ImageSave:
		return a.saveDisk(ctx, c)
	case croft.ImageCopied:
		img, err := a.catalogImage(ctx, c.Image, "", func(croft.Progress) {})
		if err != nil {
			return err
		}
		return a.madeCopy(ctx, c.Image, img)
	}
	return croft.Errorf(croft.Invalid, "the order for a copy of image %s wants %.40q", c.Image, c.Task)
}

// madeCopy records a copy whose file is verified.
func (a *Agent) madeCopy(ctx context.Context, id croft.ImageID, img CachedImage) error {
	info, err := os.Stat(img.Path)
	if err != nil {
		return err
	}
	a.Log.Info("the host has a copy of an image", "image", id, "host", a.Host.ID, "sha256", img.Digest, "bytes",
		info.Size())
	return a.Copies.MadeImage(ctx, a.Host.ID, id, croft.ImageFile{SHA256: img.Digest, Format: img.Format,
		SizeBytes: info.Size(), DiskBytes: img.VirtualSize})
}

// wanted returns the file that the order for a copy wants.
func wanted(c croft.ImageCopy) croft.ImageFile {
	return croft.ImageFile{SHA256: c.SHA256, Format: c.Format}
}

// admitUpload verifies an upload that is complete.
func (a *Agent) admitUpload(ctx context.Context, c croft.ImageCopy) error {
	if !c.Complete {
		return nil
	}
	end, err := a.imageTurns.Take(ctx, c.Image)
	if err != nil {
		return err
	}
	defer end()
	n, err := a.CopyFiles.Received(c.Image)
	if err != nil {
		return err
	}
	if n < c.SizeBytes {
		return croft.Errorf(croft.Invalid, "the upload has %d bytes of the %d that were announced", n, c.SizeBytes)
	}
	return a.admit(ctx, c)
}

// admit verifies the staged file, converts it if that is ordered, and records it.
func (a *Agent) admit(ctx context.Context, c croft.ImageCopy) error {
	take, most := a.CopyFiles.Admit, c.SizeBytes
	if c.Convert {
		a.Log.Info("converting an upload", "image", c.Image, "host", a.Host.ID)
		take, most = a.CopyFiles.Convert, c.MostBytes
	}
	file, err := take(ctx, c.Image, wanted(c), most)
	if err != nil {
		return err
	}
	a.Log.Info("the host has a copy of an image", "image", c.Image, "host", a.Host.ID, "sha256", file.SHA256, "bytes",
		file.SizeBytes)
	return a.Copies.MadeImage(ctx, a.Host.ID, c.Image, file)
}

// fetchOrigin fetches an image from where it was published.
func (a *Agent) fetchOrigin(ctx context.Context, c croft.ImageCopy, progress func(croft.Progress)) error {
	end, err := a.imageTurns.Take(ctx, c.Image)
	if err != nil {
		return err
	}
	defer end()
	if err := a.CopyFiles.Room(0, a.keeps); err != nil {
		return err
	}
	file, err := a.fromOrigin(ctx, c.Image, c.Origin, c.Public, wanted(c), c.SizeBytes, progress)
	if err != nil {
		return err
	}
	a.Log.Info("the host has fetched an image for the cloud", "image", c.Image, "host", a.Host.ID, "sha256",
		file.SHA256, "bytes", file.SizeBytes)
	return a.Copies.MadeImage(ctx, a.Host.ID, c.Image, file)
}

func (a *Agent) fromOrigin(ctx context.Context, id croft.ImageID, origin string, public bool, want croft.ImageFile,
	most int64, progress func(croft.Progress)) (croft.ImageFile, error) {
	fetch := a.Images.Fetch
	if public {
		fetch = a.Images.FetchPublic
	}
	img, err := fetch(ctx, origin, progress)
	if err != nil {
		return croft.ImageFile{}, err
	}
	return a.CopyFiles.Link(ctx, id, img, want, most)
}

// catalogImage returns the file of an image of the catalog, which is fetched from another host if needed, or else from
// its origin. The image is for an instance that the host has an order about or, without one, for a copy.
func (a *Agent) catalogImage(ctx context.Context, id croft.ImageID, instance croft.InstanceID,
	progress func(croft.Progress)) (img CachedImage, err error) {
	if a.Copies == nil || a.CopyFiles == nil {
		return img, croft.Errorf(croft.Invalid, "this host has no images of the cloud's catalog")
	}
	end, err := a.imageTurns.Take(ctx, id)
	if err != nil {
		return img, err
	}
	defer end()
	source, err := a.Copies.ImageSource(ctx, a.Host.ID, id, instance)
	if err != nil {
		return img, err
	}
	if img, have := a.CopyFiles.Get(id); have && img.Digest == source.SHA256 {
		return img, nil
	}
	if err := a.CopyFiles.Room(source.SizeBytes, a.keeps); err != nil {
		return img, err
	}
	rand.Shuffle(len(source.Hosts), func(i, j int) {
		source.Hosts[i], source.Hosts[j] = source.Hosts[j], source.Hosts[i]
	})
	var failures []string
	for _, h := range source.Hosts {
		continued, err := a.copyImage(ctx, h, id, source, progress)
		if continued && errors.Is(err, croft.Invalid) { // another host may have sent a wrong beginning
			_, err = a.copyImage(ctx, h, id, source, progress)
		}
		if ctx.Err() != nil {
			return img, ctx.Err()
		}
		if err == nil {
			a.metrics.imagesCopied.Inc()
			return a.fetched(id)
		}
		a.Log.Warn("a host did not give an image; the next one is asked", "image", id, "host", a.Host.ID, "from", h.ID,
			"err", err)
		failures = append(failures, fmt.Sprintf("host %s: %v", h.Name, err))
		if errors.Is(err, croft.NoCapacity) {
			return img, err
		}
	}
	if source.Origin != "" {
		_, err := a.fromOrigin(ctx, id, source.Origin, source.Public, source.ImageFile, source.SizeBytes, progress)
		if err == nil {
			return a.fetched(id)
		}
		if ctx.Err() != nil {
			return img, ctx.Err()
		}
		failures = append(failures, fmt.Sprintf("its origin: %v", err))
	}
	if len(failures) == 0 {
		return img, croft.Errorf(croft.Unavailable, "no host that has the image is alive")
	}
	slices.Sort(failures)
	// The kinds of these errors are not its kind: a host that lies must not end an instance.
	return img, croft.Errorf(croft.Unavailable, "no host gives the image: %s", strings.Join(failures, "; "))
}

func (a *Agent) fetched(id croft.ImageID) (CachedImage, error) {
	img, have := a.CopyFiles.Get(id)
	if !have {
		return img, croft.Errorf(croft.Unavailable, "the file of image %s is gone again", id)
	}
	return img, nil
}

// copyImage copies an image from another host to this one, and verifies it. A copy that broke off continues, also with
// another host: the identity of the file is its checksum. continued reports whether this one continued another.
func (a *Agent) copyImage(ctx context.Context, from croft.Host, id croft.ImageID, source croft.ImageSource,
	progress func(croft.Progress)) (continued bool, err error) {
	client, err := a.Peers(from)
	if err != nil {
		return false, err
	}
	receiving, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(copyStall, func() {
		cancel(croft.Errorf(croft.Unavailable, "it sent nothing for %s", wording.Duration(copyStall)))
	})
	defer stalled.Stop()
	o := origin{host: from, client: client, key: source.Key, what: "the image",
		url: strings.TrimSuffix(from.API, "/") + "/v1/image-copies/" + url.PathEscape(string(id))}
	err = diskcopy.Receive(receiving, a.CopyFiles.Staged(id), source.SizeBytes, func(ctx context.Context,
		identity string, next int64) (diskcopy.Head, io.ReadCloser, error) {
		head, body, err := o.open(ctx, "content", identity, next)
		continued = head.From > 0
		if err == nil && (head.Identity != source.SHA256 || head.SHA256 != source.SHA256) {
			err = errors.Join(croft.Errorf(croft.Invalid, "it has another file"), body.Close())
		}
		return head, body, err
	}, func(p croft.Progress) {
		stalled.Reset(copyStall)
		progress(p)
	})
	if cause := context.Cause(receiving); err != nil && cause != nil {
		return continued, cause
	}
	if err != nil {
		return continued, err
	}
	_, err = a.CopyFiles.Keep(id, source.ImageFile, source.SizeBytes)
	return continued, err
}

// copyOrder returns the order for the copy of the image in the path of a request.
func (api *API) copyOrder(r *http.Request) (croft.ImageCopy, error) {
	id, err := croft.ParseImageID(r.PathValue("image"))
	if err == nil && api.Agent.Copies == nil {
		err = croft.Errorf(croft.NotFound, "this host has no images")
	}
	if err != nil {
		return croft.ImageCopy{}, err
	}
	return api.Agent.Copies.ImageCopy(r.Context(), api.Agent.Host.ID, id)
}

// sendCopy sends the host's copy of an image to another host, which shows its certificate, in clouds whose agents use
// TLS, and the key of the image. Anyone else gets the same answer as for an unknown image.
func (api *API) sendCopy(w http.ResponseWriter, r *http.Request) {
	c, err := api.copyOrder(r)
	key, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if err != nil && !errors.Is(err, croft.NotFound) {
		httpapi.Error(w, err)
		return
	}
	if err != nil || !c.Made || c.Removing || c.Key == "" ||
		subtle.ConstantTimeCompare([]byte(key), []byte(c.Key)) != 1 || api.Caller != nil && api.Caller(r) == "" {
		httpapi.Error(w, croft.Errorf(croft.NotFound, "this host has no such image for the caller"))
		return
	}
	connlimit.Prove(r.Context())
	select {
	case api.Agent.copiesOf.sends <- struct{}{}:
		defer func() { <-api.Agent.copiesOf.sends }()
	default:
		httpapi.Error(w, croft.Errorf(croft.Unavailable, "it sends images to %d hosts already", mostSends))
		return
	}
	img, have := api.Agent.CopyFiles.Get(c.Image)
	if !have || img.Digest != c.SHA256 {
		api.Agent.imageWorkers.Wake(r.Context(), c.Image)
		httpapi.Error(w, croft.Errorf(croft.Unavailable, "the file of the image is missing"))
		return
	}
	f, err := os.Open(img.Path)
	if err != nil {
		httpapi.Error(w, err)
		return
	}
	defer f.Close()
	described := func(info os.FileInfo) diskcopy.Head {
		return diskcopy.Head{Identity: img.Digest, Size: info.Size(), SHA256: img.Digest}
	}
	if err := sendFile(w, r, f, described, func(int64, int64) error { return nil }); err != nil {
		panic(http.ErrAbortHandler) // the client must not take the end of the answer for the end of the image
	}
}

// sendFile sends a file in the form of diskcopy, from the chunk that the request names if that is of the same file.
// described returns the head of the whole file.
// sent is called with the offset up to which it was sent and the size of the file; its error ends the answer. An error
// is returned after the answer has started; before that, it is the answer.
func sendFile(w http.ResponseWriter, r *http.Request, f *os.File, described func(os.FileInfo) diskcopy.Head,
	sent func(offset, size int64) error) error {
	info, err := f.Stat()
	if err != nil {
		httpapi.Error(w, err)
		return nil
	}
	head := described(info)
	if from, err := strconv.ParseInt(r.URL.Query().Get("from"), 10, 64); err == nil && from > 0 &&
		r.URL.Query().Get("identity") == head.Identity {
		head.From = from
	}
	text, err := json.Marshal(head)
	if err != nil {
		httpapi.Error(w, err)
		return nil
	}
	w.Header().Set(headHeader, string(text))
	w.Header().Set("Content-Type", "application/octet-stream")
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	return diskcopy.Send(ctx, w, f, head, func(offset int64) {
		if err := sent(offset, head.Size); err != nil {
			cancel(err)
		}
	})
}

// Upload says how far an upload is.
type Upload struct {
	Received int64 `json:"received"` // bytes that are durable; the next chunk starts there
}

// receiveChunk appends a chunk to the upload of an image.
func (api *API) receiveChunk(w http.ResponseWriter, r *http.Request) {
	c, err := api.copyOrder(r)
	if err == nil && (c.Task != croft.ImageUpload || c.Complete || c.Removing) {
		err = croft.Errorf(croft.Conflict, "the upload of the image has ended")
	}
	if err != nil {
		httpapi.Error(w, err)
		return
	}
	files := api.Agent.CopyFiles
	if r.Method == http.MethodGet {
		n, err := files.Received(c.Image)
		if err != nil {
			httpapi.Error(w, err)
			return
		}
		httpapi.Answer(w, http.StatusOK, Upload{n})
		return
	}
	// A client that continues must not wait for its earlier request, whose connection may be dead.
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer api.Agent.copiesOf.receive(c.Image, &reception{http.NewResponseController(w), cancel})()
	end, err := api.Agent.imageTurns.Take(ctx, c.Image)
	if err != nil {
		httpapi.Error(w, croft.Errorf(croft.Conflict, "another request sends this part of the image"))
		return
	}
	defer end()
	at, err := strconv.ParseInt(r.URL.Query().Get("offset"), 10, 64)
	if err == nil {
		var n int64
		if n, err = files.Received(c.Image); err == nil {
			err = files.Room(c.SizeBytes-n, api.Agent.keeps)
		}
	}
	if err == nil {
		var n int64
		if n, err = files.Receive(ctx, c.Image, at, c.SizeBytes, r.Body); err == nil {
			httpapi.Answer(w, http.StatusOK, Upload{n})
			return
		}
	}
	if errors.Is(err, strconv.ErrSyntax) || errors.Is(err, strconv.ErrRange) {
		err = croft.Errorf(croft.Invalid, "the offset of a chunk is a number of bytes")
	}
	if errors.Is(err, croft.NoCapacity) { // Conflict means another offset
		http.Error(w, err.Error(), http.StatusInsufficientStorage)
		return
	}
	httpapi.Error(w, err)
}

// reception is a request that sends a chunk of an upload.
type reception struct {
	control *http.ResponseController
	cancel  context.CancelFunc
}

// receive ends an earlier request that sends a chunk of an image, and notes this one until done is called.
func (c *imageCopies) receive(id croft.ImageID, r *reception) (done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if earlier := c.receiving[id]; earlier != nil {
		earlier.cancel()
		_ = earlier.control.SetReadDeadline(time.Now()) // its connection may be closed
	}
	c.receiving[id] = r
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.receiving[id] == r {
			delete(c.receiving, id)
		}
	}
}

// stopSaving ends the work on an image that is being saved from a snapshot.
func (a *Agent) stopSaving(snapshot croft.VolumeID) {
	a.copiesOf.mu.Lock()
	defer a.copiesOf.mu.Unlock()
	if cancel := a.copiesOf.saving[snapshot]; cancel != nil {
		cancel()
	}
}

// isSaving reports whether an image is being saved from a snapshot.
func (a *Agent) isSaving(snapshot croft.VolumeID) bool {
	a.copiesOf.mu.Lock()
	defer a.copiesOf.mu.Unlock()
	return a.copiesOf.saving[snapshot] != nil
}

// saveDisk makes an image of the root disk of an instance, as a snapshot has it. Nothing is written to the layers below
// the snapshot while it exists, and its removal waits for saveDisk or ends it.
func (a *Agent) saveDisk(ctx context.Context, c croft.ImageCopy) error {
	if c.Snapshot == "" {
		return nil // it is not taken yet
	}
	s, err := a.Volumes.Volume(ctx, a.Host.ID, c.Snapshot)
	switch {
	case errors.Is(err, croft.NotFound), err == nil && (s.Removing || s.Snapshot == nil || s.Instance != c.Instance):
		return croft.Errorf(croft.Invalid, "the snapshot that the image was to be saved from was removed, or its instance "+
			"was")
	case err != nil:
		return err
	case s.Error != "":
		return croft.Errorf(croft.Invalid, "the snapshot that the image was to be saved from: %s", s.Error)
	case s.MadeGB == 0:
		a.copiesOf.awaited.Store(c.Image, true)
		return nil
	}
	end, err := a.volumeTurns.Take(ctx, s.ID)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	a.copiesOf.mu.Lock()
	a.copiesOf.saving[s.ID] = cancel
	a.copiesOf.mu.Unlock()
	defer func() {
		a.copiesOf.mu.Lock()
		delete(a.copiesOf.saving, s.ID)
		a.copiesOf.mu.Unlock()
		cancel()
		end()
	}()
	endImage, err := a.imageTurns.Take(ctx, c.Image)
	if err != nil {
		return err
	}
	defer endImage()
	layers, err := a.captured(ctx, s, RootDisk)
	if err != nil {
		return err
	}
	if err := a.CopyFiles.Room(0, a.keeps); err != nil {
		return err
	}
	a.Log.Info("saving the disk of an instance as an image", "instance", c.Instance, "image", c.Image, "host",
		a.Host.ID)
	if err := a.CopyFiles.Flatten(ctx, c.Image, layers, c.SizeBytes); err != nil {
		return err
	}
	if c.Generalize {
		if err := a.CopyFiles.Generalize(ctx, c.Image, c.SizeBytes); err != nil {
			return err
		}
	}
	return a.admit(ctx, c)
}
