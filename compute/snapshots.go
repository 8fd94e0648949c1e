package compute

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/internal/durable"
)

// Files in the directory of a snapshot, in addition to its mark.
const (
	frozenFile  = "frozen"  // the guest may be frozen, and is to be thawed
	rollingFile = "rolling" // a rollback has begun to replace the disks
)

// capture is one disk of a snapshot.
type capture struct {
	disk    croft.VolumeID
	dir     string
	overlay string // has what the guest wrote since the snapshot
}

// captures returns the disks of a snapshot.
func (a *Agent) captures(s croft.Volume) []capture {
	all := []capture{{disk: RootDisk, dir: a.dir(s.Snapshot.Instance)}}
	for _, v := range s.Snapshot.Volumes {
		all = append(all, capture{disk: v, dir: a.volumeDir(v)})
	}
	for i := range all {
		all[i].overlay = filepath.Join(all[i].dir, overlayName(s.ID))
	}
	return all
}

// matchSnapshots takes, rolls back and removes the snapshots of the pass's instance as their records order. A snapshot
// that fails is recorded with the reason. The error says why the guest must not start now: its disks are being
// replaced.
func (p *pass) matchSnapshots(ctx context.Context) (blocked error) {
	if p.want == nil || len(p.want.Volumes) == 0 || p.want.Want != croft.WantGone && (p.want.Want.Withdrawn() ||
		p.want.HostDeath != 0) { // the disks of a lost instance stay as they are
		return nil
	}
	all, err := p.attached(ctx)
	if err != nil {
		return err
	}
	p.snapshots = slices.DeleteFunc(all, func(v croft.Volume) bool { return v.Snapshot == nil })
	slices.SortFunc(p.snapshots, func(a, b croft.Volume) int { return int(a.CreateRevision - b.CreateRevision) })
	for _, s := range p.snapshots {
		if s.ClaimedGB < s.SizeGB { // the request may still be undone
			continue
		}
		blocks := s.Snapshot.Rollback != ""
		if err := p.doSnapshot(ctx, s); err != nil {
			p.agent.volumeFailed(ctx, s, err)
			if blocks {
				blocked = errors.Join(blocked, fmt.Errorf("roll back to snapshot %s: %w", s.Name, err))
			}
		}
	}
	return blocked
}

func (p *pass) doSnapshot(ctx context.Context, s croft.Volume) error {
	a := p.agent
	if a.isSaving(s.ID) {
		if !s.Removing && s.Snapshot.Rollback == "" && p.want.Want != croft.WantGone {
			return nil // there is nothing to do with it
		}
		a.stopSaving(s.ID)
	}
	end, err := a.volumeTurns.Take(ctx, s.ID)
	if err != nil {
		return err
	}
	defer end()
	if err := p.thaw(ctx, s); err != nil {
		a.Log.Warn("the file systems of a guest may still be frozen; that is tried again", "instance", p.id, "host",
			a.Host.ID, "snapshot", s.ID, "err", err)
	}
	switch {
	case s.Removing && s.MadeGB == 0 && p.want.Want != croft.WantGone:
		return p.removeUntaken(ctx, s)
	case s.Removing || p.want.Want == croft.WantGone:
		return p.removeSnapshot(ctx, s)
	case s.Snapshot.Rollback != "":
		return p.rollBack(ctx, s)
	case s.MadeGB == 0:
		return p.take(ctx, s)
	}
	return nil
}

// off reports whether no guest uses the instance's disks.
func (p *pass) off() bool { return p.have.Domain == nil || p.have.Domain.Power == PowerOff }

// topLayers returns the layers of a disk of the instance.
func (p *pass) topLayers(ctx context.Context, c capture) ([]Layer, error) {
	if p.have.Domain == nil {
		return p.agent.topmost(c.dir)
	}
	tops, err := p.agent.Hypervisor.Tops(ctx, p.id)
	if err != nil {
		return nil, err
	}
	if tops[c.disk] == "" {
		return nil, p.lacksDisk(ctx, c.disk)
	}
	return p.agent.layers(tops[c.disk])
}

// lacksDisk is the error about a disk that the guest does not have.
func (p *pass) lacksDisk(ctx context.Context, id croft.VolumeID) error {
	v, err := p.agent.Volumes.Volume(ctx, p.agent.Host.ID, id)
	if err != nil {
		return fmt.Errorf("look for a volume that the guest does not have: %w", err)
	}
	return croft.Errorf(croft.Conflict, "the guest does not have volume %s", v.Name)
}

// redefine makes files the tops of disks in the definition of the instance.
func (p *pass) redefine(ctx context.Context, tops map[croft.VolumeID]string) error {
	disks := Disks{}
	for disk, top := range tops {
		layers, err := p.agent.layers(top)
		if err != nil {
			return err
		}
		disks[disk] = layers
	}
	return p.agent.Hypervisor.Redefine(ctx, p.id, disks)
}

// take takes a snapshot. It is tried once: a snapshot of a later moment is another one.
func (p *pass) take(ctx context.Context, s croft.Volume) error {
	if p.want.Storage != "" {
		return croft.Errorf(croft.Conflict, "its disk is on shared storage, where croft takes no snapshots yet")
	}
	a, captures := p.agent, p.agent.captures(s)
	if p.have.Domain == nil {
		return nil // its host is building it
	}
	before, err := a.Hypervisor.Tops(ctx, p.id)
	if err != nil {
		return err
	}
	tops := map[croft.VolumeID]string{}
	for _, c := range captures {
		tops[c.disk] = c.overlay
		if before[c.disk] != "" || s.Error != "" {
			continue
		}
		// It was attached while the guest went off, so only the running guest got it.
		if err := p.matchVolumes(ctx); err != nil {
			return err
		}
		if before, err = a.Hypervisor.Tops(ctx, p.id); err != nil {
			return err
		}
	}
	how := croft.Snapshot{Taken: time.Now().UTC(), Method: croft.MethodDisks,
		Note: "the agent of the host was interrupted, so whether the guest was quiesced is not known"}
	if before[RootDisk] != tops[RootDisk] { // otherwise an earlier pass was interrupted after it had taken it
		if s.Error != "" {
			return nil
		}
		a.Log.Info("taking a snapshot", "instance", p.id, "host", a.Host.ID, "snapshot", s.ID)
		if err := p.makeOverlays(ctx, s, captures, before); err != nil {
			return err
		}
		if err := p.putOver(ctx, s, tops, &how); err != nil {
			if ctx.Err() == nil {
				err = errors.Join(err, p.dropUnused(ctx, captures))
			}
			return err
		}
	}
	if err := p.redefine(ctx, tops); err != nil {
		return err
	}
	return a.Volumes.TookSnapshot(ctx, a.Host.ID, s.ID, how)
}

// makeOverlays makes the files that receive what the guest writes after the snapshot.
func (p *pass) makeOverlays(ctx context.Context, s croft.Volume, captures []capture,
	tops map[croft.VolumeID]string) error {
	if err := p.agent.makeMark(ctx, s); err != nil {
		return err
	}
	for _, c := range captures {
		top := tops[c.disk]
		if top == "" {
			return p.lacksDisk(ctx, c.disk)
		}
		if err := p.agent.Images.Overlay(ctx, c.overlay, Layer{Path: top, Format: "qcow2"}); err != nil {
			return errors.Join(err, p.dropUnused(ctx, captures))
		}
	}
	return nil
}

// dropUnused removes the overlays of a snapshot that was not taken.
func (p *pass) dropUnused(ctx context.Context, captures []capture) error {
	tops, err := p.agent.Hypervisor.Tops(ctx, p.id)
	if err != nil {
		return err
	}
	for _, c := range captures {
		if tops[c.disk] != c.overlay {
			err = errors.Join(err, removeFiles(c.overlay))
		}
	}
	return err
}

// quiescePatience is how long a snapshot waits until its guest's agent may be called. Then the guest is not quiesced.
const quiescePatience = time.Minute

// putOver makes overlays the tops of all disks at one moment, and notes how.
func (p *pass) putOver(ctx context.Context, s croft.Volume, tops map[croft.VolumeID]string, how *croft.Snapshot) error {
	a := p.agent
	how.Taken, how.Note = time.Now().UTC(), ""
	if p.off() {
		how.Method = croft.MethodOff
		return p.redefine(ctx, tops)
	}
	if p.have.Domain.Power != PowerOn {
		how.Note = "the guest is paused"
		return a.Hypervisor.PutOver(ctx, p.id, tops, false)
	}
	how.Method = croft.MethodQuiesced
	leave, err := a.agentTurns.take(ctx, s.Project, time.Now().Add(quiescePatience))
	if err != nil && ctx.Err() == nil {
		how.Method, how.Note = croft.MethodDisks, err.Error()
		return a.Hypervisor.PutOver(ctx, p.id, tops, false)
	}
	if err != nil {
		return err
	}
	frozen := filepath.Join(a.volumeDir(s.ID), frozenFile)
	if err = durable.Write(frozen, nil, 0o600); err != nil {
		leave()
		return err
	}
	err = a.Hypervisor.PutOver(ctx, p.id, tops, true)
	leave()
	if err == nil {
		return removeFiles(frozen)
	}
	if ctx.Err() != nil {
		return err
	}
	how.Method, how.Note = croft.MethodDisks, err.Error()
	if errors.Is(err, ErrNoAgent) {
		how.Note = ErrNoAgent.Error()
		if err := removeFiles(frozen); err != nil {
			return err
		}
	}
	now, err := a.Hypervisor.Tops(ctx, p.id)
	if err != nil || now[RootDisk] == tops[RootDisk] { // only the thaw failed
		return err
	}
	return a.Hypervisor.PutOver(ctx, p.id, tops, false)
}

// thaw thaws a guest that a snapshot may have left frozen.
func (p *pass) thaw(ctx context.Context, s croft.Volume) error {
	frozen := filepath.Join(p.agent.volumeDir(s.ID), frozenFile)
	is, err := exists(frozen)
	if err != nil || !is {
		return err
	}
	if !p.off() {
		leave, err := p.agent.agentTurns.take(ctx, s.Project, time.Now().Add(quiescePatience))
		if err != nil {
			return err
		}
		err = p.agent.Hypervisor.Thaw(ctx, p.id)
		leave()
		if err != nil {
			return err
		}
	}
	return removeFiles(frozen)
}

// rollBack replaces what was written since a snapshot by nothing. The new, empty overlays are all written before the
// first one takes the place of an old one, so a host without space leaves the disks as they are. From then on the
// rollback is repeated until it is complete, and the guest does not start before that.
func (p *pass) rollBack(ctx context.Context, s croft.Volume) error {
	a, captures := p.agent, p.agent.captures(s)
	rolling := filepath.Join(a.volumeDir(s.ID), rollingFile)
	begun, err := exists(rolling)
	if err != nil {
		return err
	}
	giveUp := func(why error) error {
		if begun || ctx.Err() != nil {
			return why
		}
		for _, c := range captures {
			why = errors.Join(why, removeFiles(c.overlay+newSuffix))
		}
		return a.Volumes.RolledBack(ctx, a.Host.ID, s.ID, time.Now().UTC(), "not rolled back, and nothing was lost: "+
			why.Error())
	}
	if !p.off() {
		if s.Snapshot.Rollback != croft.RollbackStop && !begun {
			return giveUp(croft.Errorf(croft.Conflict, "the instance runs: stop it first"))
		}
		if err := p.powerOff(ctx); err != nil {
			return err
		}
	}
	below := map[string]Layer{}
	for _, c := range captures {
		layers, err := p.topLayers(ctx, c)
		switch {
		case err != nil:
			return giveUp(err)
		case layers[0].Path != c.overlay || len(layers) < 2:
			return giveUp(croft.Errorf(croft.Conflict, "there is a newer snapshot: remove it first"))
		}
		below[c.overlay] = layers[1]
	}
	a.Log.Info("rolling back", "instance", p.id, "host", a.Host.ID, "snapshot", s.ID)
	for _, c := range captures {
		if err := a.Images.Overlay(ctx, c.overlay+newSuffix, below[c.overlay]); err != nil {
			return giveUp(err)
		}
	}
	if err := durable.Write(rolling, nil, 0o600); err != nil {
		return giveUp(err)
	}
	for _, c := range captures {
		err := os.Rename(c.overlay+newSuffix, c.overlay)
		if err == nil {
			err = durable.FlushDir(c.dir)
		}
		if err != nil {
			return fmt.Errorf("replace the disk: %w", err)
		}
	}
	if err := removeFiles(rolling); err != nil {
		return err
	}
	return a.Volumes.RolledBack(ctx, a.Host.ID, s.ID, time.Now().UTC(), "")
}

// powerOff stops the guest for a rollback.
func (p *pass) powerOff(ctx context.Context) error {
	p.memory.started = time.Time{} // the next start counts as a new one
	if err := p.agent.Hypervisor.Stop(ctx, p.id); err != nil {
		return err
	}
	domain, err := p.agent.Hypervisor.Get(ctx, p.id)
	if err == nil && domain.Power != PowerOff {
		err = croft.Errorf(croft.Unavailable, "the guest does not stop")
	}
	if err == nil {
		p.have.Domain = &domain
	}
	return err
}

// removeUntaken removes a snapshot that is not recorded as taken. Its overlays that are no part of a disk have no data,
// and are removed whatever state the disks are in, which may be why it was not taken.
func (p *pass) removeUntaken(ctx context.Context, s croft.Volume) error {
	if p.have.Domain == nil {
		return p.removeSnapshot(ctx, s)
	}
	captures := p.agent.captures(s)
	if err := p.dropUnused(ctx, captures); err != nil {
		return err
	}
	for _, c := range captures {
		if there, err := exists(c.overlay); err != nil || there { // it was taken, and that was not recorded
			return errors.Join(err, p.removeSnapshot(ctx, s))
		}
	}
	return p.agent.removeVolume(ctx, s)
}

// removeSnapshot merges the overlays of a snapshot into the layers below, and removes the snapshot once that is done.
// Of an instance that is to be gone it only ends the unfinished ones: dissolve does the rest.
func (p *pass) removeSnapshot(ctx context.Context, s croft.Volume) error {
	complete := true
	for _, c := range p.agent.captures(s) {
		done, err := p.mergeOverlay(ctx, c)
		if err != nil {
			return err
		}
		complete = complete && done
	}
	switch {
	case p.want.Want == croft.WantGone:
		return nil
	case !complete:
		p.agent.awaitedVolumes.Store(s.ID, true)
		return nil
	}
	return p.agent.removeVolume(ctx, s)
}

// mergeOverlay takes the overlay of a snapshot out of a disk of the instance. False: it goes on in the background.
func (p *pass) mergeOverlay(ctx context.Context, c capture) (done bool, err error) {
	a, merged := p.agent, c.overlay+mergedSuffix
	there, err := exists(c.overlay)
	if err != nil || !there {
		return err == nil, errors.Join(err, removeFiles(merged))
	}
	layers, err := p.topLayers(ctx, c)
	if err != nil {
		return false, err
	}
	at := LayerAt(layers, c.overlay)
	switch {
	case at < 0: // it was never used, or its data is in the layer below already
		return true, removeFiles(c.overlay, merged)
	case p.want.Want == croft.WantGone:
		return true, removeFiles(merged)
	case at+1 >= len(layers):
		return false, croft.Errorf(croft.Conflict, "%s has no layer below", c.overlay)
	case p.off():
		if slices.ContainsFunc(Plan(p.want, p.have), func(s Step) bool { return s.Op == OpStart }) {
			return false, nil // merging can take long, and the guest can do it while it runs
		}
		var redefine func([]Layer) error
		if p.have.Domain != nil {
			redefine = func(now []Layer) error { return a.Hypervisor.Redefine(ctx, p.id, Disks{c.disk: now}) }
		}
		err := a.mergeOff(ctx, layers, c.overlay, redefine)
		return err == nil, err
	}
	if err := a.Images.Fits(c.overlay); err != nil {
		return false, err
	}
	if err := durable.Write(merged, nil, 0o600); err != nil {
		return false, err
	}
	done, err = a.Hypervisor.Merge(ctx, p.id, c.disk, c.overlay, layers[at+1].Path)
	if err != nil || !done {
		return false, err
	}
	top := layers[0].Path
	if at == 0 {
		top = layers[1].Path
	}
	if err := p.redefine(ctx, map[croft.VolumeID]string{c.disk: top}); err != nil {
		return false, err
	}
	return true, removeFiles(c.overlay, merged)
}

// settleMerges ends what the definition of a domain says about interrupted merges on this host, before it is removed:
// an overlay that is not part of a disk any more has no data.
func (a *Agent) settleMerges(ctx context.Context, id croft.InstanceID) error {
	tops, err := a.Hypervisor.Tops(ctx, id)
	if errors.Is(err, croft.NotFound) {
		return nil
	}
	for _, top := range tops {
		if below, is := strings.CutPrefix(top, a.Dir); is && strings.HasPrefix(below, "/") {
			err = errors.Join(err, a.settleMergesOf(top))
		}
	}
	return err
}

// settleMergesOf is settleMerges for the disk with this topmost file.
func (a *Agent) settleMergesOf(top string) error {
	merged, err := filepath.Glob(filepath.Join(filepath.Dir(top), "*"+mergedSuffix))
	if err != nil || len(merged) == 0 {
		return err
	}
	layers, err := a.layers(top)
	if err != nil {
		return err
	}
	for _, mark := range merged {
		if overlay := strings.TrimSuffix(mark, mergedSuffix); LayerAt(layers, overlay) < 0 {
			err = errors.Join(err, removeFiles(overlay))
		}
		err = errors.Join(err, removeFiles(mark))
	}
	return err
}

// dissolve merges the overlays of a snapshot on volumes that no guest uses, in turn with the other snapshots of each
// volume. The instance's own disk is gone.
func (a *Agent) dissolve(ctx context.Context, s croft.Volume) error {
	for _, c := range a.captures(s)[1:] {
		if err := a.inTurn(ctx, c.disk, func() error { return a.dissolveOne(ctx, c) }); err != nil {
			return err
		}
	}
	return nil
}

func (a *Agent) dissolveOne(ctx context.Context, c capture) error {
	there, err := exists(c.overlay)
	if err == nil && !there {
		err = removeFiles(c.overlay + mergedSuffix) // that an interrupted merge left
	}
	if err != nil || !there {
		return err
	}
	if err := a.unused(ctx, c.disk, ""); err != nil {
		return err
	}
	layers, err := a.topmost(c.dir)
	if err != nil {
		return err
	}
	if LayerAt(layers, c.overlay) < 0 { // its data is in the layer below already
		return removeFiles(c.overlay, c.overlay+mergedSuffix)
	}
	return a.mergeOff(ctx, layers, c.overlay, nil)
}

// dissolveAll takes all snapshots of the instance, whose domain is gone, out of the volumes that outlive it.
func (p *pass) dissolveAll(ctx context.Context) error {
	for _, s := range p.snapshots {
		if err := p.agent.dissolve(ctx, s); err != nil {
			return fmt.Errorf("end snapshot %s: %w", s.Name, err)
		}
	}
	return nil
}
