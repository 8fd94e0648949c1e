package compute

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"croft"
	"croft/compute/diskcopy"
	"croft/internal/durable"
	"croft/internal/plain"
)

// arrivalFile, in the directory of an instance that arrives, has the checksum of the key of its move: the files in the
// directory are of this move, and not of an earlier instance.
const arrivalFile = "arrival"

// stagedSuffix marks the staging files of disks that arrive.
const stagedSuffix = ".arriving"

// mostCopies is the number of disks that a host fetches at the same time.
const mostCopies = 2

// arrivalPatience is how long a move goes on without a byte of the disk. Then the instance stays where it was.
const arrivalPatience = 5 * time.Minute

// mostTables is how much larger than the disk its file may be: for tables, and for clusters that were discarded.
const mostTables = 1 << 30

// arrive gets the disk from the host of the move, and defines the domain on it.
func (p *pass) arrive(ctx context.Context) error {
	if p.want.Move == nil {
		return croft.Errorf(croft.Invalid, "the order to arrive names no host")
	}
	if err := p.runs(); err != nil {
		return err
	}
	nics, err := p.nics()
	if err != nil {
		return err
	}
	source, err := p.source()
	if err != nil {
		return err
	}
	if err := p.takeTurn(ctx); err != nil {
		return err
	}
	defer func() { <-p.agent.copies }()
	p.observePassing(ctx, croft.Observation{State: croft.StateMoving})
	dir := p.agent.dir(p.id)
	if err := p.claimDirectory(dir); err != nil {
		return err
	}
	from, err := p.origin(ctx)
	if err != nil {
		return err
	}
	leaving, layers, err := p.carry(ctx, from, dir)
	if err == nil && leaving.NVRAM {
		err = p.carryNVRAM(ctx, from, filepath.Join(dir, nvramFile))
	}
	if err != nil {
		return err
	}
	if leaving.Report != (guestReport{}) {
		if err := p.agent.Reports().write(p.id, leaving.Report); err != nil {
			return err
		}
	}
	return p.define(ctx, layers, source, nics)
}

// carry returns the disk as the domain has it: copied from the other host or, on shared storage, locked.
func (p *pass) carry(ctx context.Context, from origin, dir string) (leaving departing, layers []Layer, err error) {
	if _, err := p.fetchCD(ctx); err != nil {
		return leaving, nil, err
	}
	if p.want.Storage != "" {
		if leaving, err = from.departure(ctx); err == nil {
			err = p.lockArriving(ctx)
		}
		if err == nil {
			err = p.carryVolumes(ctx, from)
		}
		disks, failed := p.diskDir()
		if err = cmp.Or(err, failed); err == nil {
			layers, err = onStorage(ctx, p, func() ([]Layer, error) { return p.agent.topmost(disks) })
		}
		return leaving, layers, err
	}
	var img CachedImage
	var uncached error
	restored := p.want.Restores(0)
	// before the guest is stopped, which the first question to its host does
	if !restored && p.want.Spec.Image != "" {
		img, uncached = p.fetch(ctx)
	}
	if leaving, err = from.departure(ctx); err != nil {
		return leaving, nil, err
	}
	if leaving.BaseFormat == "" {
		img = CachedImage{}
	} else if restored || uncached != nil || img.Digest != leaving.BaseSHA256 || img.Format != leaving.BaseFormat {
		if img, err = p.copyBase(ctx, from, leaving, dir); err != nil {
			return leaving, nil, err
		}
	}
	if err := p.carryVolumes(ctx, from); err != nil {
		return leaving, nil, err
	}
	layers, err = p.carried(ctx, from, img, dir)
	if err == nil && restored { // a domain whose definition is lost keeps the disk
		err = p.noteRestored()
	}
	return leaving, layers, err
}

// carryNVRAM copies the variables of the guest's UEFI.
func (p *pass) carryNVRAM(ctx context.Context, from origin, file string) error {
	if there, err := exists(file); there || err != nil {
		return err
	}
	if err := p.copy(ctx, from, nvramFile, file, file+stagedSuffix); err != nil {
		return fmt.Errorf("copy the variables of its UEFI: %w", err)
	}
	return nil
}

// carryVolumes copies the volumes of the move from the other host. The ones on shared storage are locked when the
// domain is defined.
func (p *pass) carryVolumes(ctx context.Context, from origin) error {
	for _, v := range croft.LocalVolumes(p.want.Move.Volumes) {
		if err := p.carryVolume(ctx, from, v); err != nil {
			return fmt.Errorf("copy volume %s: %w", v.Name, err)
		}
	}
	return nil
}

// arrivalMark returns the contents of the arrivalFile of the order's move.
func (p *pass) arrivalMark() string { return p.arrivalMarkOf(p.want.Move) }

// arrivalMarkOf returns the contents of the arrivalFile of a move; nil: none.
func (*pass) arrivalMarkOf(m *croft.Move) string {
	if m == nil {
		return ""
	}
	sum := sha256.Sum256([]byte(m.Key))
	return hex.EncodeToString(sum[:])
}

// ofMove reports whether the tombstone of a move that ended on the other host means the files here: they are that
// move's, and not of an earlier instance, which the move has refused to touch. Other tombstones mean all files.
func (p *pass) ofMove() (bool, error) {
	if p.want.Move == nil {
		return true, nil
	}
	found, err := os.ReadFile(filepath.Join(p.agent.dir(p.id), arrivalFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && string(found) == p.arrivalMark(), err
}

// claimDirectory makes the directory of the instance, or of a volume, for this move. Invalid: it has files of something
// else.
func (p *pass) claimDirectory(dir string) error {
	mark := p.arrivalMark()
	path := filepath.Join(dir, arrivalFile)
	switch found, err := os.ReadFile(path); {
	case err == nil && string(found) == mark:
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(entries) > 0 {
		return croft.Errorf(croft.Invalid, "host %s has older files with this UUID in %s; save what is needed of them "+
			"and "+
			"remove them, then move it again", p.agent.Host.Name, dir)
	}
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return fmt.Errorf("make the directory of a disk that arrives: %w", err)
	}
	return durable.Write(path, []byte(mark), 0o600)
}

// takeTurn waits until few enough disks are being copied to this host. The guests of the ones that wait run on.
func (p *pass) takeTurn(ctx context.Context) error {
	select {
	case p.agent.copies <- struct{}{}:
		return nil
	default:
	}
	select {
	case p.agent.copies <- struct{}{}:
		p.memory.arrived = time.Now()
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// copyBase copies the image below the disk from the other host: its address does not answer, or has another image now.
func (p *pass) copyBase(ctx context.Context, from origin, leaving departing, dir string) (img CachedImage, err error) {
	if ctx.Err() != nil {
		return img, ctx.Err()
	}
	if leaving.BaseFormat != "qcow2" && leaving.BaseFormat != "raw" {
		return img, croft.Errorf(croft.Invalid, "its image has the format %.20q", leaving.BaseFormat)
	}
	path := filepath.Join(dir, baseFile+"."+leaving.BaseFormat)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if err := p.copy(ctx, from, baseFile, path, path+stagedSuffix); err != nil {
			return img, err
		}
	}
	if img, err = p.agent.Images.Base(ctx, dir); err == nil && img.Digest != leaving.BaseSHA256 {
		err = errors.Join(croft.Errorf(croft.Invalid, "its image arrived with other bytes than its digest says"),
			os.Remove(path))
	}
	return img, err
}

// carried returns the disk as the domain has it, after copying it; without a format of img, it has no image below.
func (p *pass) carried(ctx context.Context, from origin, img CachedImage, dir string) ([]Layer, error) {
	staged := filepath.Join(dir, diskFile+stagedSuffix)
	if _, err := os.Stat(filepath.Join(dir, diskFile)); errors.Is(err, fs.ErrNotExist) {
		if err := p.copy(ctx, from, "disk", "", staged); err != nil {
			return nil, err
		}
	}
	layers, err := p.agent.Images.Adopt(ctx, img, dir, staged, p.want.Spec.Resources[croft.DiskGB])
	if err != nil {
		return nil, err
	}
	return layers, diskcopy.Forget(staged)
}

// carryVolume copies a volume of the instance. The mark of its directory is written last: then it is complete.
func (p *pass) carryVolume(ctx context.Context, from origin, v croft.Volume) error {
	a := p.agent
	dir, file := a.volumeDir(v.ID), a.volumeFile(v.ID)
	if err := p.claimDirectory(dir); err != nil {
		return err
	}
	if there, err := exists(file); err != nil {
		return err
	} else if !there {
		if err := p.copySized(ctx, from, string(v.ID), file, file+stagedSuffix, v.ClaimedGB); err != nil {
			return err
		}
	}
	if below, err := a.Images.Below(file); err != nil || below != "" {
		return cmp.Or(err, croft.Errorf(croft.Invalid, "it has an unexpected backing file, %s", below))
	}
	v.MadeGB = 0 // no file is missing: this one is new here
	return errors.Join(durable.FlushDir(dir), a.makeMark(ctx, v))
}

// leaveVolumes removes the copies of volumes that are on another host now, or that a move that ended has brought here,
// and releases their claims here.
func (p *pass) leaveVolumes(ctx context.Context) error {
	a := p.agent
	ids, arrived := slices.Clone(p.want.Left), false
	if p.want.Move != nil {
		arrived = true
		for _, v := range croft.LocalVolumes(p.want.Move.Volumes) {
			ids = append(ids, v.ID)
		}
	}
	for _, id := range ids {
		elsewhere := func(ctx context.Context) ([]croft.HostID, error) {
			_, err := a.Volumes.Volume(ctx, a.Host.ID, id)
			switch {
			case errors.Is(err, croft.NotFound):
				return []croft.HostID{a.Host.ID}, nil
			case err == nil:
				err = errVolumeHere
			}
			return nil, err
		}
		if _, err := elsewhere(ctx); errors.Is(err, errVolumeHere) {
			continue
		} else if err != nil {
			return err
		}
		if err := a.dropCopy(ctx, id, arrived, p.arrivalMarkOf(p.want.Move)); err != nil {
			return fmt.Errorf("remove the copy of volume %s: %w", id, err)
		}
		err := a.Inventory.Release(ctx, id.Consumer(), elsewhere)
		if err != nil && !errors.Is(err, errVolumeHere) && !errors.Is(err, croft.NotFound) {
			return err
		}
	}
	return nil
}

var errVolumeHere = errors.New("the volume is on this host")

// dropCopy removes the files of a volume that is not on this host: with arrived only those that a move with this mark
// has brought, else only the ones that no move has brought.
func (a *Agent) dropCopy(ctx context.Context, id croft.VolumeID, arrived bool, mark string) error {
	dir := a.volumeDir(id)
	found, err := os.ReadFile(filepath.Join(dir, arrivalFile))
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case arrived && string(found) != mark, !arrived && err == nil:
		return nil
	}
	if !arrived {
		if own, err := a.markOf(id); err != nil || own == nil {
			return err
		}
	}
	if err := a.unused(ctx, id, ""); err != nil {
		return err
	}
	a.Log.Info("removing the copy of a volume", "volume", id, "host", a.Host.ID)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries { // the marks go last, so that what is left after a crash is known to be a copy
		if name := e.Name(); name != arrivalFile && name != volumeOwner {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, name)))
		}
	}
	if err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// copy copies a file of the instance from the other host to a staging file and, unless to is empty, gives it this name.
func (p *pass) copy(ctx context.Context, from origin, file, to, staged string) error {
	return p.copySized(ctx, from, file, to, staged, p.want.Spec.Resources[croft.DiskGB])
}

// copySized is copy for a disk of a size in GiB.
func (p *pass) copySized(ctx context.Context, from origin, file, to, staged string, sizeGB int64) error {
	p.agent.Log.Info("copying a disk", "instance", p.id, "host", p.agent.Host.ID, "from", from.host.ID, "file", file)
	most := sizeGB<<30 + sizeGB<<26 + mostTables
	err := diskcopy.Receive(ctx, staged, most, func(ctx context.Context, identity string, next int64) (diskcopy.Head,
		io.ReadCloser, error) {
		return from.open(ctx, file, identity, next)
	}, func(croft.Progress) { p.memory.arrived = time.Now() })
	if err != nil || to == "" {
		return err
	}
	if err := os.Rename(staged, to); err != nil {
		return err
	}
	return diskcopy.Forget(staged)
}

// endArrival ends a move that cannot succeed: the instance stays on its host. Other failures are tried again, until
// nothing has arrived for arrivalPatience.
func (p *pass) endArrival(ctx context.Context, failure error) {
	if failure == nil || ctx.Err() != nil {
		return
	}
	p.agent.Log.Warn("the order is not carried out", "instance", p.id, "host", p.agent.Host.ID, "op",
		string(p.want.Want), "err", failure)
	p.agent.instances.await(p.id, true)
	full := errors.Is(failure, croft.NoCapacity) || errors.Is(failure, syscall.ENOSPC)
	if !isFinal(failure) && !full && time.Since(p.memory.arrived) < arrivalPatience {
		return
	}
	why := plain.Cut(strings.TrimSpace(failure.Error()), plain.Longest)
	if err := p.agent.Orders.Arrived(ctx, *p.want, why); err != nil {
		p.agent.logUnless(ctx, err, "end the move")
	}
}

// handOver makes the former host of a moved instance remove its copy of the disk, once the guest runs here, or is off
// as its order wants it.
func (p *pass) handOver(ctx context.Context) {
	if p.want.MovedFrom == "" || p.memory.handedOver == p.want.CreateRevision {
		return
	}
	domain, err := p.agent.Hypervisor.Get(ctx, p.id)
	off := p.want.Want == croft.WantStopped && domain.Power == PowerOff
	on := p.want.Want == croft.WantRunning && domain.Power == PowerOn
	if err != nil || !off && !on {
		return
	}
	if on && time.Since(p.memory.started) < startGrace && len(domain.Addresses) == 0 {
		p.agent.instances.await(p.id, true)
		return
	}
	switch err := p.agent.Orders.HandOver(ctx, *p.want); {
	case err == nil:
		p.memory.handedOver = p.want.CreateRevision
		_ = os.Remove(filepath.Join(p.agent.dir(p.id), arrivalFile)) // it only takes a few bytes
		for _, id := range p.want.Volumes {
			_ = os.Remove(filepath.Join(p.agent.volumeDir(id), arrivalFile))
		}
	case ctx.Err() == nil:
		p.agent.instances.await(p.id, true)
		p.agent.logUnless(ctx, err, "hand a moved instance over")
	}
}

// origin is the agent that has the disk of an instance.
type origin struct {
	host   croft.Host
	client *http.Client
	url    string // of the files
	what   string // for messages
	key    string
}

// origin returns the agent that has the disk of the pass's instance.
func (p *pass) origin(ctx context.Context) (o origin, err error) {
	o.host, err = p.agent.Orders.Origin(ctx, *p.want)
	if err != nil {
		return o, err
	}
	if !o.host.Alive || o.host.API == "" {
		return o, croft.Errorf(croft.Unavailable, "host %s, where its disk is, is silent", o.host.Name)
	}
	o.client, err = p.agent.Peers(o.host)
	o.url = strings.TrimSuffix(o.host.API, "/") + "/v1/instances/" + url.PathEscape(string(p.id)) + "/leaving"
	o.key, o.what = p.want.Move.Key, "its disk"
	return o, err
}

// get sends a request. The caller closes the body.
func (o origin) get(ctx context.Context, path string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, o.url+path, nil)
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "the address of host %s: %w", o.host.Name, err)
	}
	request.Header.Set("Authorization", "Bearer "+o.key)
	answer, err := o.client.Do(request)
	if err != nil {
		return nil, croft.Errorf(croft.Unavailable, "host %s, where %s is, does not answer at %s (%w); does a "+
			"firewall let this host in?", o.host.Name, o.what, o.host.API, errors.Unwrap(err))
	}
	if answer.StatusCode == http.StatusOK {
		return answer, nil
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 4<<10))
	kind := croft.Unavailable // it may do so later
	switch answer.StatusCode {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity:
		kind = croft.Invalid
	}
	return nil, errors.Join(croft.Errorf(kind, "host %s, where %s is, refuses to give it: %s", o.host.Name, o.what,
		strings.TrimSpace(plain.Cut(string(text), plain.Longest))), err)
}

func (o origin) departure(ctx context.Context) (d departing, err error) {
	answer, err := o.get(ctx, carriesNVRAM)
	if err != nil {
		return departing{}, err
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(io.LimitReader(answer.Body, 64<<10)).Decode(&d); err != nil {
		return departing{}, croft.Errorf(croft.Unavailable, "read what host %s says of the disk: %w", o.host.Name, err)
	}
	return d, nil
}

// open implements diskcopy.Open for a file.
func (o origin) open(ctx context.Context, file, identity string, from int64) (head diskcopy.Head, _ io.ReadCloser,
	err error) {
	query := url.Values{"identity": {identity}, "from": {strconv.FormatInt(from, 10)}}
	answer, err := o.get(ctx, "/"+file+"?"+query.Encode())
	if err != nil {
		return head, nil, err
	}
	if err := json.Unmarshal([]byte(answer.Header.Get(headHeader)), &head); err != nil {
		_ = answer.Body.Close()
		return head, nil, croft.Errorf(croft.Invalid, "host %s says nothing of the file that it sends", o.host.Name)
	}
	return head, answer.Body, nil
}
