package compute

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"croft"
	"croft/compute/backup"
	"croft/internal/durable"
)

// Files in the directory of an instance whose disks are made from a backup.
const (
	restoredSuffix = ".restored" // of a disk that is complete and verified once swappingFile exists
	swappingFile   = "swapping"  // all disks are verified, and are taking their places
	restoredFile   = "restored"  // which order's backup the disks are from
	restoredMode   = 0o600
)

// restore makes the disks of the instance from the backup in its order. The present disks stay until all others are
// complete and verified; from then on it is repeated until all have taken their places.
func (p *pass) restore(ctx context.Context) error {
	if p.want.Storage != "" {
		return croft.Errorf(croft.Invalid, "its disk is on shared storage, where croft restores no backups yet: "+
			"restore it as a "+
			"new instance with --storage local")
	}
	a, from := p.agent, p.want.Backup
	dir := a.dir(p.id)
	done := restoredText(*from)
	text, err := os.ReadFile(filepath.Join(dir, restoredFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for the restored disks: %w", err)
	}
	if string(text) == done {
		return nil
	}
	if a.Backups == nil || a.Repository == nil {
		return croft.Errorf(croft.Invalid, "this host cannot restore backups: install restic and libnbd-bin")
	}
	j, err := a.Backups.Job(ctx, a.Host.ID, backup.RestoreJob(p.id, p.want.Generation))
	switch {
	case errors.Is(err, croft.NotFound):
		a.instances.await(p.id, true)
		return errNoAccess
	case err != nil:
		return err
	case j.Report.Done && j.Report.Error != "": // only another order tries it again
		return croft.Errorf(croft.Invalid, "%s", j.Report.Error)
	case j.Backup != from.ID || j.Instance != p.id:
		return croft.Errorf(croft.Invalid, "the job to restore the instance is for another backup")
	}
	err = p.restoreFrom(ctx, j, done)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	report := backup.Report{Done: true, At: time.Now().UTC()}
	if err != nil {
		a.metrics.jobs.WithLabelValues(string(j.Kind), outcome(ctx, err)).Inc()
		if errors.Is(err, croft.Unavailable) && !errors.Is(err, ErrDamaged) && !p.defined() {
			return err // nothing runs meanwhile, so it is tried again
		}
		access, _ := a.Key.Open(j)
		report.Error, report.Damaged = masked(err.Error(), access), errors.Is(err, ErrDamaged)
		err = croft.Errorf(croft.Invalid, "%s", report.Error)
	} else {
		a.metrics.jobs.WithLabelValues(string(j.Kind), "ok").Inc()
	}
	return errors.Join(err, a.Backups.Report(ctx, a.Host.ID, j.ID, report))
}

// restoredText is what the restoredFile contains once the disks are from a backup.
func restoredText(from croft.FromBackup) string {
	return fmt.Sprintf("%s %d", from.ID, from.Generation)
}

// noteRestored notes that the disks are from the backup in the order.
func (p *pass) noteRestored() error {
	file := filepath.Join(p.agent.dir(p.id), restoredFile)
	return durable.Write(file, []byte(restoredText(*p.want.Backup)), restoredMode)
}

// defined reports whether the instance has a domain, and so disks that it keeps.
func (p *pass) defined() bool { return p.have.Domain != nil }

// remade is a disk of an instance that is made from a backup.
type remade struct {
	index  int // in the disks of the job
	sizeGB int64
}

// restoreFrom does the job to restore the instance.
func (p *pass) restoreFrom(ctx context.Context, j backup.Job, done string) error {
	a, dir := p.agent, p.agent.dir(p.id)
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return fmt.Errorf("make the instance's directory: %w", err)
	}
	if len(p.snapshots) > 0 {
		return croft.Errorf(croft.Conflict, "it has snapshots, such as %s: remove them first", p.snapshots[0].Name)
	}
	if !p.off() {
		return croft.Errorf(croft.Conflict, "the guest runs: stop it first")
	}
	files := map[string]remade{}
	sizes := map[croft.VolumeID]int64{"": p.want.Spec.Resources[croft.DiskGB]}
	attached, err := p.volumes(ctx)
	if err != nil {
		return err
	}
	for _, v := range attached {
		sizes[v.ID] = max(v.MadeGB, v.ClaimedGB)
	}
	for i, d := range j.Disks {
		if d.Volume != "" {
			at := slices.IndexFunc(attached, func(v croft.Volume) bool {
				return v.ID == d.Volume || v.CopyOf == d.Volume
			})
			switch {
			case at < 0 && p.defined():
				return croft.Errorf(croft.Conflict, "volume %s is not attached any more", d.Name)
			case at < 0:
				continue // servers of older versions order all disks for a new instance without volumes
			}
			if err := a.makeMark(ctx, attached[at]); err != nil {
				return fmt.Errorf("%s: %w", diskWord(d), err)
			}
			id := attached[at].ID
			files[a.volumeFile(id)] = remade{i, sizes[id]}
			continue
		}
		files[filepath.Join(dir, diskFile)] = remade{i, sizes[""]}
	}
	swapping := filepath.Join(dir, swappingFile)
	verified, err := exists(swapping)
	if err != nil {
		return err
	}
	if !verified {
		if err := p.stage(ctx, j, files); err != nil {
			return err
		}
		if err := durable.Write(swapping, []byte(done), restoredMode); err != nil {
			return err
		}
	}
	return p.swap(ctx, files, sizes)
}

// stage makes and verifies all disks next to the present ones.
func (p *pass) stage(ctx context.Context, j backup.Job, files map[string]remade) (err error) {
	a := p.agent
	access, err := a.Key.Open(j)
	if err != nil {
		return err
	}
	defer func() {
		for file := range files {
			if err != nil && ctx.Err() == nil {
				err = errors.Join(err, removeFiles(file+restoredSuffix))
			}
		}
	}()
	a.Log.Info("restoring", "instance", p.id, "host", a.Host.ID, "backup", j.Backup)
	for file, disk := range files {
		d := j.Disks[disk.index]
		r, w := io.Pipe()
		read := make(chan error, 1)
		go func() {
			err := a.readBack(ctx, j, access, disk.index, w)
			_ = w.CloseWithError(err) // nil: end of file
			read <- err
		}()
		written := a.Images.WriteDisk(ctx, file+restoredSuffix, disk.sizeGB, r)
		_ = r.CloseWithError(errWritten)
		if err := <-read; err != nil && !errors.Is(err, errWritten) {
			return fmt.Errorf("%s: %w", diskWord(d), err)
		}
		if written != nil {
			return fmt.Errorf("%s: %w", diskWord(d), written)
		}
	}
	return nil
}

// errWritten ends the reading of a disk that could not be written.
var errWritten = errors.New("the disk is not written any more")

// swap gives the staged disks to the instance.
func (p *pass) swap(ctx context.Context, files map[string]remade, sizes map[croft.VolumeID]int64) error {
	a, dir := p.agent, p.agent.dir(p.id)
	for file := range files {
		staged, err := exists(file + restoredSuffix)
		if err == nil && staged {
			err = os.Rename(file+restoredSuffix, file)
		}
		if err == nil {
			err = durable.FlushDir(filepath.Dir(file))
		}
		if err != nil {
			return fmt.Errorf("replace the disk: %w", err)
		}
	}
	if p.defined() {
		tops := map[croft.VolumeID]string{}
		for disk := range sizes {
			if disk == "" {
				tops[RootDisk] = filepath.Join(dir, diskFile)
			} else {
				tops[disk] = a.volumeFile(disk)
			}
		}
		if err := p.redefine(ctx, tops); err != nil {
			return err
		}
	}
	if err := p.noteRestored(); err != nil {
		return err
	}
	// The image was below the disk that was replaced.
	base := filepath.Join(dir, baseFile)
	return removeFiles(filepath.Join(dir, swappingFile), base+".qcow2", base+".raw")
}
