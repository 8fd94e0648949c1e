package federation

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"croft"
	"croft/internal/nearest"
	"croft/tenant"
	"croft/tenant/objects"
)

// Format is the version of the file: JSON Lines with a Header, then one Row per line, then a Trailer. Files of version
// 1 have no aggregates and no distances, files of version 2 no UUIDs of projects; both can be read.
const Format = 3

// Header is the first line of an export.
type Header struct {
	Format    int               `json:"export"` // the version of the format
	Partition croft.PartitionID `json:"partition"`
	Name      string            `json:"name,omitempty"` // alias that the exporter proposes
	Revision  int64             `json:"revision"`       // of etcd, the revision of all rows
	Time      time.Time         `json:"time"`
}

// Trailer is the last line. A file without it is truncated.
type Trailer struct {
	Rows   int    `json:"rows"`
	SHA256 string `json:"sha256"` // of all lines before it, in hexadecimal digits
}

// check validates a header. Invalid.
func (h Header) check() error {
	if id, err := uuid.Parse(string(h.Partition)); err != nil || id.String() != string(h.Partition) {
		return croft.Errorf(croft.Invalid, "the export names no partition: %.80q is not a UUID", string(h.Partition))
	}
	if h.Revision < 1 || h.Time.IsZero() {
		return croft.Errorf(croft.Invalid, "the first line of the export lacks a revision or a time: export again")
	}
	if h.Name != "" {
		return CheckAlias(h.Name)
	}
	return nil
}

// alias returns the alias of a partition for which none is given.
func (h Header) alias() string { return cmp.Or(h.Name, string(h.Partition[:8])) }

// maxLine bounds a line, in bytes: a row is stored as one value in etcd, which accepts 1.5 MiB per request.
const maxLine = 512 << 10

// writer writes an export.
type writer struct {
	to   *bufio.Writer
	sum  hash.Hash
	rows int
}

func newWriter(w io.Writer) *writer { return &writer{bufio.NewWriter(w), sha256.New(), 0} }

func (w *writer) line(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write a line of the export: %w", err)
	}
	text = append(text, '\n')
	w.sum.Write(text)
	_, err = w.to.Write(text)
	return err
}

// row writes a row.
func (w *writer) row(r Row) error {
	w.rows++
	return w.line(r)
}

// end writes the trailer.
func (w *writer) end() error {
	if err := w.line(Trailer{w.rows, hex.EncodeToString(w.sum.Sum(nil))}); err != nil {
		return err
	}
	return w.to.Flush()
}

// read reads an export: it calls begin with the header, and each with every valid row. Their input is complete and
// undamaged only if read returns nil. Invalid.
func read(from io.Reader, begin func(Header) error, each func(Row) error) error {
	r := &reader{from: bufio.NewReader(from), sum: sha256.New(), seen: map[string]bool{}}
	h, err := r.header()
	if err == nil {
		err = begin(h)
	}
	if err != nil {
		return err
	}
	for {
		done, err := r.line(each)
		if err != nil {
			return fmt.Errorf("line %d of the export: %w", r.lines, err)
		}
		if done {
			return nil
		}
	}
}

// reader reads an export line by line.
type reader struct {
	from        *bufio.Reader
	sum         hash.Hash
	lines, rows int
	seen        map[string]bool // kinds with IDs, to find duplicates
}

// next returns a line with its newline. Invalid: the line is too long, or the file ends.
func (r *reader) next() ([]byte, error) {
	var line []byte
	for {
		part, err := r.from.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxLine:
			return nil, croft.Errorf(croft.Invalid, "it is longer than %d bytes, as no export's is", maxLine)
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF):
			r.lines++
			return nil, croft.Errorf(croft.Invalid, "the file was cut off here: copy it again, or export again")
		case err != nil:
			return nil, fmt.Errorf("read the export: %w", err)
		}
		r.lines++
		return line, nil
	}
}

// header reads the first line. For a newer format it reads only the version.
func (r *reader) header() (Header, error) {
	line, err := r.next()
	if err != nil {
		return Header{}, fmt.Errorf("line %d of the export: %w", max(1, r.lines), err)
	}
	var version struct {
		Format *int `json:"export"`
	}
	if json.Unmarshal(line, &version) != nil || version.Format == nil {
		return Header{}, croft.Errorf(croft.Invalid,
			"this is no export of a partition: its first line is not one of `croft partition export`")
	}
	if *version.Format < 1 || *version.Format > Format {
		return Header{}, croft.Errorf(croft.Invalid, "the export has format %d, and this croft knows formats 1 to %d: upgrade, "+
			"or export with a croft of this version", *version.Format, Format)
	}
	var h Header
	if err := strictly(line, &h); err != nil {
		return Header{}, fmt.Errorf("line 1 of the export: %w", err)
	}
	r.sum.Write(line)
	return h, h.check()
}

// line reads one line after the header, and reports whether it is the trailer.
func (r *reader) line(each func(Row) error) (done bool, err error) {
	text, err := r.next()
	if err != nil {
		return false, err
	}
	var one struct {
		Row
		Rows   *int   `json:"rows"`
		SHA256 string `json:"sha256"`
	}
	if err := strictly(text, &one); err != nil {
		return false, err
	}
	if one.Rows != nil {
		return true, r.trailer(*one.Rows, one.SHA256)
	}
	r.sum.Write(text)
	r.rows++
	identify, known := identities[one.Kind]
	if !known {
		return false, croft.Errorf(croft.Invalid, "there is no kind %.40q%s", string(one.Kind), nearest.Hint(
			fmt.Sprintf("%.40s", one.Kind), kindNames()))
	}
	id, err := identify(one.Row.Row)
	if err != nil {
		return false, fmt.Errorf("%s: %w", one.Kind, err)
	}
	id = string(one.Kind) + " " + id
	if r.seen[id] {
		return false, croft.Errorf(croft.Invalid, "%.120s is there twice", id)
	}
	r.seen[id] = true
	return false, each(one.Row)
}

func (r *reader) trailer(rows int, sum string) error {
	if rows != r.rows || sum != hex.EncodeToString(r.sum.Sum(nil)) {
		return croft.Errorf(croft.Invalid, "the lines before are not those that were exported: copy the file again, or "+
			"export again")
	}
	if _, err := r.from.ReadByte(); !errors.Is(err, io.EOF) {
		return croft.Errorf(croft.Invalid, "something follows the last line of the export")
	}
	return nil
}

func kindNames() []string {
	var all []string
	for _, k := range Kinds {
		all = append(all, string(k))
	}
	return all
}

// strictly decodes one JSON value, and rejects unknown fields. Invalid.
func strictly(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil && d.More() {
		err = errors.New("there is more than one value")
	}
	if err != nil {
		return croft.Errorf(croft.Invalid, "%w", err)
	}
	return nil
}

// identities checks a row of each kind, and returns its identity, which must be unique in its kind. Invalid.
var identities = map[Kind]func([]byte) (string, error){
	KindHost:      identity(func(h Host) (string, error) { return canonical(string(h.ID)) }),
	KindProvider:  identity(func(p Provider) (string, error) { return canonical(string(p.ID)) }),
	KindAggregate: identity(func(a croft.Aggregate) (string, error) { return a.Name, a.Check() }),
	KindDistance: identity(func(d Distance) (string, error) {
		return fmt.Sprintf("%s %s %s", d.Type, d.A, d.B), errors.Join(croft.CheckDistanceType(d.Type), d.Check())
	}),
	KindQuota:   identity(func(d tenant.Defaults) (string, error) { return "", d.Limits.Check() }),
	KindProject: identity(func(p tenant.Tenant) (string, error) { return string(p.Name), p.Check() }),
	KindDefinition: identity(func(d objects.Definition) (string, error) {
		return fmt.Sprintf("%s %s", d.Level, d.Kind), d.Place.Check()
	}),
	KindObject: identity(func(o objects.Object) (string, error) {
		return fmt.Sprintf("%s %s %s", o.Kind, o.Project, o.ID), o.Ref.Check()
	}),
	KindInstance: identity(func(i Instance) (string, error) {
		if err := i.Project.Check(); err != nil {
			return "", err
		}
		return canonical(string(i.ID))
	}),
}

func identity[T any](of func(T) (string, error)) func([]byte) (string, error) {
	return func(text []byte) (string, error) {
		var v T
		if len(text) == 0 || slices.Equal(text, []byte("null")) {
			return "", croft.Errorf(croft.Invalid, "the row is missing")
		}
		if err := strictly(text, &v); err != nil {
			return "", err
		}
		return of(v)
	}
}

// canonical accepts a UUID in croft's form. Invalid.
func canonical(id string) (string, error) {
	if u, err := uuid.Parse(id); err != nil || u.String() != id {
		return "", croft.Errorf(croft.Invalid, "%.80q is not a UUID in lower case", strings.ToValidUTF8(id, "?"))
	}
	return id, nil
}
