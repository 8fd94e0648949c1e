package federation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"croft"
)

// Store stores partitions and their imported data.
type Store interface {
	// Snapshot reads all rows of an export of home at one revision; providers only of the Placement in etcd. It calls
	// begin with the revision, then each with every row. Conflict: the revision was compacted meanwhile.
	Snapshot(ctx context.Context, begin func(revision int64) error, each func(Row) error) error
	// List returns the partitions other than home, by alias.
	List(ctx context.Context) ([]Partition, error)
	// Rows calls each with the shown rows of a kind of a partition, in the order of the export, at one revision.
	// NotFound: nothing was imported of the partition.
	Rows(ctx context.Context, id croft.PartitionID, kind Kind, each func(json.RawMessage) error) error
	// Begin starts an import, which is not visible yet.
	Begin(ctx context.Context, id croft.PartitionID) (Draft, error)
	// Remove deletes the imported data of a partition, and the partition if it is no peer. NotFound.
	Remove(ctx context.Context, id croft.PartitionID) error
}

// Draft is an import that is not visible yet. It ends with Show or Discard.
type Draft interface {
	// Add adds rows. Conflict: meanwhile another import of the partition became visible, or the partition was removed.
	Add(ctx context.Context, rows ...Row) error
	// Show replaces the visible rows by the draft, as the partition that settle returns, in one transaction. settle
	// gets the other partitions and the visible state of this one, or nil; it may be called repeatedly, and Show
	// returns its error. Conflict: as for Add.
	Show(ctx context.Context, settle func(others []Partition, current *Partition) (Partition, error)) (Partition, error)
	// Discard removes the rows.
	Discard(ctx context.Context) error
}

// Providers reads the resource providers of a Placement that has its own store.
type Providers interface {
	Providers(ctx context.Context) ([]croft.Provider, error)
}

// Service exports home and imports other partitions.
type Service struct {
	Home  croft.PartitionID
	Store Store
	Peers PeerStore
	Apart Providers // read if snapshots have no providers
	// Foreign: Placement has its own store, so providers in snapshots are outdated.
	Foreign bool
}

// exportTries bounds how often an export is restarted because its revision was compacted.
const exportTries = 5

// List returns all partitions, home first.
func (s *Service) List(ctx context.Context) ([]Partition, error) {
	all, err := s.Store.List(ctx)
	return append([]Partition{{ID: s.Home, Alias: HomeAlias, Home: true}}, all...), err
}

// Find returns a partition by ID or alias. NotFound.
func (s *Service) Find(ctx context.Context, idOrAlias string) (Partition, error) {
	all, err := s.List(ctx)
	if err != nil {
		return Partition{}, err
	}
	return Called(all, idOrAlias)
}

// Export writes an export of home. name, which may be empty, is an alias that it proposes to others. It writes nothing
// until everything was read. Invalid: the name. Unavailable.
func (s *Service) Export(ctx context.Context, name string, w io.Writer) (h Header, err error) {
	if name != "" {
		if err := CheckAlias(name); err != nil {
			return h, err
		}
	}
	spool, err := os.CreateTemp("", "croft-export-")
	if err != nil {
		return h, fmt.Errorf("keep the export until it is complete: %w", err)
	}
	defer spool.Close()
	if err := os.Remove(spool.Name()); err != nil {
		return h, fmt.Errorf("keep the export until it is complete: %w", err)
	}
	for try := range exportTries {
		h, err = s.export(ctx, name, spool)
		if !errors.Is(err, croft.Conflict) || try == exportTries-1 {
			break
		}
	}
	if err != nil {
		return h, err
	}
	if _, err := spool.Seek(0, io.SeekStart); err != nil {
		return h, fmt.Errorf("read the export again: %w", err)
	}
	_, err = io.Copy(w, spool)
	return h, err
}

// export writes an export to a file, replacing its content.
func (s *Service) export(ctx context.Context, name string, to *os.File) (h Header, err error) {
	if _, err := to.Seek(0, io.SeekStart); err != nil {
		return h, err
	}
	if err := to.Truncate(0); err != nil {
		return h, err
	}
	w := newWriter(to)
	begin := func(revision int64) error {
		h = Header{Format: Format, Partition: s.Home, Name: name, Revision: revision,
			Time: time.Now().UTC().Truncate(time.Second)}
		return w.line(h)
	}
	found := false
	each := func(r Row) error {
		if r.Kind == KindProvider && s.Foreign {
			return nil
		}
		found = found || r.Kind == KindProvider
		return w.row(r)
	}
	if err := s.Store.Snapshot(ctx, begin, each); err != nil {
		return h, fmt.Errorf("export partition %s: %w", s.Home, err)
	}
	if !found {
		if err := s.apart(ctx, w); err != nil {
			return h, err
		}
	}
	return h, w.end()
}

func (s *Service) apart(ctx context.Context, w *writer) error {
	all, err := s.Apart.Providers(ctx)
	if err != nil {
		return fmt.Errorf("export the providers: %w", err)
	}
	for _, p := range all {
		if p.Root == p.ID {
			p.Root = ""
		}
		row, err := json.Marshal(Provider{ID: p.ID, Name: p.Name, Root: p.Root, Inventories: p.Inventories,
			Traits: p.Traits, Aggregates: p.Aggregates})
		if err != nil {
			return fmt.Errorf("export provider %s: %w", p.ID, err)
		}
		if err := w.row(Row{KindProvider, row}); err != nil {
			return err
		}
	}
	return nil
}

// Import imports an export completely or not at all. alias, if not empty, becomes the partition's alias. changed is
// false if the same export is visible already. Invalid: the file is damaged, truncated, of another format, or of home.
// Conflict: a newer export is visible, or another partition has the alias.
func (s *Service) Import(ctx context.Context, from io.Reader, alias string) (p Partition, changed bool, err error) {
	if alias != "" {
		if err := CheckAlias(alias); err != nil {
			return p, false, err
		}
	}
	m := &importing{service: s, ctx: ctx, rows: map[Kind]int{}}
	if err := read(from, func(h Header) error { return m.begin(h, alias) }, m.add); err != nil {
		return m.failed(err)
	}
	if m.there {
		return m.shown, false, nil // the whole file was read, so that its digest was compared
	}
	if err := m.flush(); err != nil {
		return m.failed(err)
	}
	p, err = m.draft.Show(ctx, func(others []Partition, current *Partition) (Partition, error) {
		return settle(m.header, m.rows, alias, others, current)
	})
	if err != nil {
		return m.failed(err)
	}
	return p, true, nil
}

// importing is the state of one call of Import.
type importing struct {
	service *Service
	ctx     context.Context
	header  Header
	there   bool      // the export is visible already
	shown   Partition // the partition, if there
	draft   Draft
	rows    map[Kind]int
	batch   []Row
	bytes   int
}

// Bounds of a batch of rows, which is one transaction.
const (
	batchRows  = 100
	batchBytes = 256 << 10
)

// discardTime bounds the cleanup of a failed import.
const discardTime = 10 * time.Second

func (m *importing) begin(h Header, alias string) error {
	m.header = h
	if h.Partition == m.service.Home {
		return croft.Errorf(croft.Invalid, "the export is of this very partition, which is not imported into itself")
	}
	all, err := m.service.Store.List(m.ctx)
	if err != nil {
		return err
	}
	if p, err := Called(all, string(h.Partition)); err == nil && p.Imported != nil {
		if err := newer(h, p.Imported); err != nil {
			return err
		}
		if p.Imported.Revision == h.Revision && (alias == "" || alias == p.Alias) {
			m.there, m.shown = true, p
			return nil
		}
	}
	m.draft, err = m.service.Store.Begin(m.ctx, h.Partition)
	return err
}

func (m *importing) add(r Row) error {
	if m.there {
		return nil
	}
	m.rows[r.Kind]++
	m.batch, m.bytes = append(m.batch, r), m.bytes+len(r.Row)
	if len(m.batch) < batchRows && m.bytes < batchBytes {
		return nil
	}
	return m.flush()
}

func (m *importing) flush() error {
	if len(m.batch) == 0 {
		return nil
	}
	err := m.draft.Add(m.ctx, m.batch...)
	m.batch, m.bytes = nil, 0
	return err
}

// failed removes the stored rows of a failed import.
func (m *importing) failed(err error) (Partition, bool, error) {
	if m.draft == nil {
		return Partition{}, false, err
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(m.ctx), discardTime)
	defer cancel()
	return Partition{}, false, errors.Join(err, m.draft.Discard(after))
}

// Rows calls each with the imported rows of a kind of a partition. NotFound. Invalid: the kind is unknown, or the
// partition is home.
func (s *Service) Rows(ctx context.Context, idOrAlias string, kind Kind, each func(json.RawMessage) error) error {
	if _, known := identities[kind]; !known {
		return croft.Errorf(croft.Invalid, "there is no kind %.40q", string(kind))
	}
	p, err := s.Find(ctx, idOrAlias)
	switch {
	case err != nil:
		return err
	case p.Home:
		return croft.Errorf(croft.Invalid, "%s is this installation's own partition: use `croft host list`, "+
			"`croft project list` or `schedule list`", idOrAlias)
	}
	return s.Store.Rows(ctx, p.ID, kind, each)
}

// Remove deletes the imported data of a partition, and returns its former record. A peer stays one: RemovePeer ends the
// exchange of requests. NotFound. Invalid: it is home, or a peer without imported data.
func (s *Service) Remove(ctx context.Context, idOrAlias string) (Partition, error) {
	p, err := s.Find(ctx, idOrAlias)
	switch {
	case err != nil:
		return p, err
	case p.Home:
		return p, croft.Errorf(croft.Invalid, "%s is this installation's own partition, which stays", idOrAlias)
	case p.Peer != nil && p.Imported == nil:
		return p, croft.Errorf(croft.Invalid, "nothing was imported of partition %s, which is a peer: "+
			"`croft partition peer remove %[1]s` ends that", p.Alias)
	}
	return p, s.Store.Remove(ctx, p.ID)
}
