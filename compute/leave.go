package compute

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"croft"
	"croft/compute/diskcopy"
	"croft/internal/connlimit"
	"croft/internal/httpapi"
)

// Names of the files in an instance's directory that a move copies. The base has its format as its extension.
const (
	diskFile  = "disk.qcow2"
	baseFile  = "base"
	nvramFile = "nvram.fd" // of a guest with UEFI
	cdFile    = "cd.iso"   // the ISO in the CD drive, which no move copies
)

// carriesNVRAM is a query of the first request of a move's target. Older versions do not copy the nvramFile.
const carriesNVRAM = "?nvram=1"

// departing is what the target of a move with the disk learns before it copies.
type departing struct {
	// of the image below the disk; empty: the disk is on shared storage, or has no image, since it was restored
	BaseFormat string      `json:"base_format"`
	BaseSHA256 string      `json:"base_sha256"` // of that file
	Report     guestReport `json:"report"`
	NVRAM      bool        `json:"nvram,omitempty"` // the guest has UEFI variables
}

// departure is the disk of an instance that leaves. Nothing writes to it.
type departure struct {
	departing
	generation int64 // of the order to leave
	volumes    []croft.Volume
	asked      atomic.Int64 // when the target last asked for anything or got bytes, in seconds since 1970
	why        error        // why the disk cannot be copied; nil: it can
	copied     atomic.Int64 // bytes of the disk up to which it was sent
	size       atomic.Int64
}

// leave prepares the disk for the target of the move: the guest is off, and nothing writes to its files until another
// order arrives.
func (p *pass) leave(ctx context.Context) error {
	if d := p.memory.departure.Load(); d != nil && d.generation == p.want.Generation {
		return nil
	}
	if p.want.Move == nil {
		return croft.Errorf(croft.Invalid, "the order to leave names no host")
	}
	d := &departure{generation: p.want.Generation, volumes: croft.LocalVolumes(p.want.Move.Volumes)}
	var err error
	if d.departing, err = p.departing(ctx); isFinal(err) || errors.Is(err, croft.Conflict) {
		d.why = err
	} else if err != nil {
		return err
	}
	d.asked.Store(time.Now().Unix())
	p.memory.departure.Store(d)
	return nil
}

// departurePatience is how long a guest that leaves stays off without a sign of life of its target.
const departurePatience = 10 * time.Minute

// endDeparture ends a move whose target has gone: the guest starts here again.
func (p *pass) endDeparture(ctx context.Context, d *departure) {
	if time.Since(time.Unix(d.asked.Load(), 0)) < departurePatience {
		return
	}
	err := p.agent.Orders.Arrived(ctx, *p.want, "the host that it was moving to did not copy its disk")
	if err != nil {
		p.agent.logUnless(ctx, err, "end the move")
	}
}

// departing describes the disk. Conflict: a move would lose something.
func (p *pass) departing(ctx context.Context) (d departing, err error) {
	dir := p.agent.dir(p.id)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return d, err
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) == ".qcow2" && e.Name() != diskFile && !strings.HasPrefix(e.Name(), baseFile+".") {
			return d, croft.Errorf(croft.Conflict, "a move does not carry its other disks, such as %s", e.Name())
		}
	}
	for _, v := range croft.LocalVolumes(p.want.Move.Volumes) {
		layers, err := p.agent.topmost(p.agent.volumeDir(v.ID))
		switch {
		case err != nil:
			return d, err
		case len(layers) > 1:
			return d, croft.Errorf(croft.Conflict, "a move does not carry the snapshots of volume %s", v.Name)
		}
		if err := removeFiles(filepath.Join(p.agent.volumeDir(v.ID), arrivalFile)); err != nil { // of an earlier move
			return d, err
		}
	}
	if err := p.leaveShared(ctx); err != nil {
		return d, err
	}
	d.Report = p.agent.Reports().read(p.id)
	if d.NVRAM, err = exists(filepath.Join(dir, nvramFile)); err != nil {
		return d, err
	}
	if p.want.Storage != "" {
		return d, p.leaveDisk(ctx)
	}
	if below, err := p.agent.Images.Below(filepath.Join(dir, diskFile)); err == nil && below == "" {
		return d, nil
	}
	base, err := p.agent.Images.Base(ctx, dir)
	d.BaseFormat, d.BaseSHA256 = base.Format, base.Digest
	return d, err
}

// progress returns how much of the disk was sent; nil: nothing yet.
func (d *departure) progress() *croft.Progress {
	if d.size.Load() == 0 {
		return nil
	}
	return &croft.Progress{Done: d.copied.Load(), Total: d.size.Load()}
}

// leaving serves next to the target of the move of the instance in the path: it shows the certificate of that host, in
// clouds whose agents use TLS, and the key of this move. Anyone else gets the same answer as for an unknown instance.
func (api *API) leaving(next func(http.ResponseWriter, *http.Request, croft.InstanceID, *departure)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id, err := croft.ParseInstanceID(r.PathValue("id"))
		if err != nil {
			httpapi.Error(w, err)
			return
		}
		order, err := api.Agent.Orders.Order(r.Context(), api.Agent.Host.ID, id)
		if err != nil && !errors.Is(err, croft.NotFound) {
			httpapi.Error(w, err)
			return
		}
		key, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if err != nil || order.Want != croft.WantLeaving || order.Move == nil || order.Move.Key == "" ||
			subtle.ConstantTimeCompare([]byte(key), []byte(order.Move.Key)) != 1 ||
			api.Caller != nil && api.Caller(r) != order.Move.Host {
			httpapi.Error(w, croft.Errorf(croft.NotFound, "instance %s does not leave this host for the caller's", id))
			return
		}
		connlimit.Prove(r.Context())
		m := api.Agent.instances.remember(id)
		m.asked.Store(order.Generation)
		d := m.departure.Load()
		if d != nil {
			d.asked.Store(time.Now().Unix())
		}
		switch {
		case d == nil || d.generation != order.Generation:
			api.Agent.reporters.Put(id)
			httpapi.Error(w, croft.Errorf(croft.Unavailable, "instance %s is not off yet", id))
		case d.why != nil:
			httpapi.Error(w, d.why)
		default:
			next(w, r, id, d)
		}
	}
}

func (api *API) departure(w http.ResponseWriter, r *http.Request, _ croft.InstanceID, d *departure) {
	if d.NVRAM && "?"+r.URL.RawQuery != carriesNVRAM {
		httpapi.Error(w, croft.Errorf(croft.Conflict, "it boots by UEFI, and the host that it moves to is of a version "+
			"that does not carry the variables of a UEFI: upgrade that host"))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(d.departing) // ignore clients that went away
}

// headHeader is the header that has the diskcopy.Head of an answer, in JSON.
const headHeader = "Croft-Disk"

// errLeft ends a copy whose order was replaced.
var errLeft = errors.New("the instance does not leave any more")

// copyFile sends the disk of an instance that leaves, or the image below it.
func (api *API) copyFile(w http.ResponseWriter, r *http.Request, id croft.InstanceID, d *departure) {
	root, name := false, r.PathValue("file")
	path := ""
	switch at := slices.IndexFunc(d.volumes, func(v croft.Volume) bool { return string(v.ID) == name }); {
	case at >= 0:
		path = api.Agent.volumeFile(d.volumes[at].ID)
	case name == nvramFile:
		path = filepath.Join(api.Agent.dir(id), nvramFile)
	case name == baseFile:
		path = filepath.Join(api.Agent.dir(id), baseFile+"."+d.BaseFormat)
	default:
		root, path = true, filepath.Join(api.Agent.dir(id), diskFile)
	}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		err = croft.Errorf(croft.NotFound, "instance %s has no file %s on this host", id, filepath.Base(path))
	}
	if err != nil {
		httpapi.Error(w, err)
		return
	}
	defer f.Close()
	told := time.Now()
	err = sendFile(w, r, f, diskcopy.HeadOf, func(offset, size int64) error {
		d.asked.Store(time.Now().Unix())
		if api.Agent.instances.remember(id).departure.Load() != d {
			return errLeft
		}
		if !root {
			return nil
		}
		d.copied.Store(offset)
		d.size.Store(size)
		if time.Since(told) > time.Second {
			told = time.Now()
			api.Agent.reporters.Put(id)
		}
		return nil
	})
	if err != nil {
		if r.Context().Err() == nil {
			api.Agent.Log.Warn("the copy of a disk broke off", "instance", id, "host", api.Agent.Host.ID, "err", err)
		}
		panic(http.ErrAbortHandler) // the client must not take the end of the answer for the end of the disk
	}
}
