package gate

import (
	"context"
	"time"

	"croft"
	"croft/compute"
	"croft/compute/backup"
	"croft/internal/lazyregexp"
	"croft/internal/mailbox"
)

var _ compute.Backups = (*Client)(nil)

// aboutJob names a job of a host, and what the host reports about it.
type aboutJob struct {
	Host   croft.HostID  `json:"host"`
	Job    string        `json:"job"`
	Report backup.Report `json:"report,omitzero"`
}

// jobForm is the form of the IDs of jobs, which become parts of keys.
var jobForm = lazyregexp.New(`^[0-9a-f-]{36,60}$`)

// digestForm is the form of what a host reports about a disk: a snapshot of restic, and a digest.
var digestForm = lazyregexp.New(`^[0-9a-f]{0,64}$`)

func ownJob(caller croft.HostID, q aboutJob) error {
	if err := own(caller, q.Host); err != nil {
		return err
	}
	if !jobForm.MatchString(q.Job) {
		return croft.Errorf(croft.Invalid, "%.80q is not the ID of a job", q.Job)
	}
	return nil
}

func (s *Server) job(ctx context.Context, caller croft.HostID, q aboutJob) (backup.Job, error) {
	if err := ownJob(caller, q); err != nil {
		return backup.Job{}, err
	}
	return s.Backups.Job(ctx, caller, q.Job)
}

// longestReport limits the error in a report, in bytes.
const longestReport = 4096

func (s *Server) report(ctx context.Context, caller croft.HostID, q aboutJob) (none, error) {
	if err := ownJob(caller, q); err != nil {
		return none{}, err
	}
	if err := checkReport(&q.Report, time.Now().UTC()); err != nil {
		return none{}, err
	}
	return none{}, s.Backups.Report(ctx, caller, q.Job, q.Report)
}

// checkReport refuses a report that no agent makes. A room from the future is one from now: stores keep the newest.
func checkReport(r *backup.Report, now time.Time) error {
	if len(r.Error) > longestReport || len(r.Disks) > backup.MaxDisks {
		return croft.Errorf(croft.Invalid, "the report about a job is too long")
	}
	for _, d := range r.Disks {
		if !digestForm.MatchString(d.Restic) || !digestForm.MatchString(d.SHA256) || d.Bytes < 0 || d.Added < 0 ||
			len(d.Name) > 63 || len(d.Volume) > 36 {
			return croft.Errorf(croft.Invalid, "the report about a job has a disk that no agent reports")
		}
	}
	if room := r.Room; room != nil && (room.Free < 0 || room.Size < room.Free) {
		return croft.Errorf(croft.Invalid, "the report about a job has a room that no agent reports")
	}
	if r.Room != nil && r.Room.At.After(now) {
		r.Room.At = now
	}
	return nil
}

// watchJobs streams the changes of the host's jobs.
func (s *Server) watchJobs(v visit) error {
	if v.request.ProtoMajor < 2 {
		return errHTTP1
	}
	o := s.open(v)
	defer o.close()
	changed := mailbox.New[string]()
	o.work.Go(func() {
		defer o.hangUp()
		_ = s.Backups.WatchJobs(o.ctx, o.caller, func(id string) { changed.Put(id) })
	})
	o.work.Go(func() {
		_ = changed.Run(o.ctx, func(id string) {
			if o.send(line{Job: id}) != nil {
				o.hangUp()
			}
		})
	})
	o.lines(func(line) bool { return true }) // the client sends only heartbeats
	return nil
}

// WatchJobs implements compute.Backups.
func (c *Client) WatchJobs(ctx context.Context, _ croft.HostID, wake func(string)) error {
	s := keeper{client: c, open: func(ctx context.Context, k *connection, heard func()) {
		c.converse(ctx, k, "WatchJobs", line{}, nil, func(l line, _ *said) {
			heard()
			if l.Job != "" {
				wake(l.Job)
			}
		})
	}}
	return s.run(ctx)
}

// Job implements compute.Backups.
func (c *Client) Job(ctx context.Context, host croft.HostID, id string) (backup.Job, error) {
	return ask[backup.Job](ctx, c, "Job", aboutJob{Host: host, Job: id})
}

// Report implements compute.Backups.
func (c *Client) Report(ctx context.Context, host croft.HostID, id string, r backup.Report) error {
	return do(ctx, c, "Report", aboutJob{Host: host, Job: id, Report: r})
}
