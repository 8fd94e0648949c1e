package etcdstore

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
)

// The store has a schema version, major.minor. A program refuses another major version. Each minor version adds fields
// that programs of older minor versions do not need and ignore, so the store is raised to a minor version before
// records of that version are written.
//
//	1.0
//	1.1 orders may name the trace that they belong to
//	1.2 user-data has its own key, tombstones have no spec, instances have restart policies,
//	    an instance that is moved repeatedly names all hosts that still have parts of it
//	1.3 groups have rules about locations, whose members have seats; instances may expire,
//	    or be near to a location
//	1.5 instances may be required to be in aggregates and locations, or not in them,
//	    or far from something, or near by a type of distances; operators state distances
//	1.6 CRUSH policies choose hosts: instances name their policy, and the hosts that it refused before theirs
//	1.7 clusters are built on sites, and count for the quotas of their projects; instances name the cluster that they
//	    are part of, and its other members
//	1.8 projects have UUIDs, to which rights, tokens, tickets and mappings are bound; programs keep fields of records
//	    that they do not know; volumes are disks of their own, and instances have snapshots; hosts are declared dead;
//	    instances move with their disks; images are in a catalog of the cloud; instances may be protected
const (
	schemaMajor   = 1
	schemaMinor   = 8
	tracesMinor   = 1 // from this version on orders name traces
	userDataMinor = 2 // from this version on orders and records have no user-data
	formersMinor  = 2 // from this version on orders name more than one former host
	restartMinor  = 2 // from this version on agents apply restart policies
	expiryMinor   = 3 // from this version on caretakers destroy instances that have expired
	seatsMinor    = 3 // from this version on seats are removed with the records of their instances
	boundsMinor   = 5 // from this version on specs name aggregates and locations to be in
	policyMinor   = 6 // from this version on specs name the policy that chose the host
	volumesMinor  = 8 // from this version on agents make volumes, and audits know their claims
	movesMinor    = 8 // from this version on agents carry disks to other hosts, and audits know the orders for it
	imagesMinor   = 8 // from this version on agents have copies of images, and specs name images of the catalog
	lostMinor     = 8 // from this version on caretakers keep the records of lost instances
	deadMinor     = 8 // from this version on agents start nothing on hosts that were declared dead
	clusterMinor  = 7 // from this version on clusters are counted, and other programs do not change their members
	storageMinor  = 8 // from this version on agents keep disks on shared storage, and audits know their claims
	resizeMinor   = 8 // from this version on agents resize domains, and audits undo requests to resize
	protectMinor  = 8 // from this version on programs destroy no protected instance
	addressMinor  = 8 // from this version on agents give guests chosen addresses, and programs free these
	vacatesMinor  = 4 // from this version on agents release the claims on their host of instances that moved away
)

type home struct {
	Partition croft.PartitionID `json:"partition"`
	Schema    string            `json:"schema"`
}

func schemaOf(minor int64) string { return fmt.Sprintf("%d.%d", schemaMajor, minor) }

// minorOf returns the minor version of a stored schema. Invalid: the schema is not ours.
func minorOf(stored string) (int64, error) {
	major, text, ok := strings.Cut(stored, ".")
	minor, err := strconv.ParseInt(text, 10, 64)
	if !ok || err != nil || major != strconv.Itoa(schemaMajor) {
		return 0,
			croft.Errorf(croft.Invalid,
				"etcd has data of croft's schema %q, and this program supports %d.x; use a program of that "+
					"version", stored,
				schemaMajor)
	}
	return minor, nil
}

// enter finds the home partition. With mint, it creates the partition if necessary, and raises an older minor
// version.
func (s *conn) enter(ctx context.Context, mint bool) error {
	got, err := s.etcd.Get(ctx, homeKey)
	if err != nil {
		return s.wrap(err, "read %s", homeKey)
	}
	if len(got.Kvs) == 0 {
		if !mint {
			return croft.Errorf(croft.NotFound,
				"etcd at %s has no data of croft yet; start `croft up` (or `croft serve compute`) first", s.endpoints)
		}
		return s.mint(ctx)
	}
	kv := got.Kvs[0]
	var h home
	if err := json.Unmarshal(kv.Value, &h); err != nil || h.Partition == "" {
		return fmt.Errorf("read %s: %q is not a home record: %w", homeKey, kv.Value, err)
	}
	minor, err := minorOf(h.Schema)
	if err != nil {
		return err
	}
	if mint && minor < schemaMinor {
		return s.raise(ctx, h, kv.ModRevision)
	}
	s.partition, s.keys = h.Partition, keysOf(h.Partition)
	s.minor.Store(minor)
	return nil
}

// mint writes a new home. Of several concurrent calls one succeeds, and all read its result.
func (s *conn) mint(ctx context.Context) error {
	value := encode(home{croft.NewPartitionID(), schemaOf(schemaMinor)})
	if _, err := s.etcd.Txn(ctx).If(absent(homeKey)).Then(clientv3.OpPut(homeKey, value)).Commit(); err != nil {
		return s.wrap(err, "mint %s", homeKey)
	}
	return s.enter(ctx, false)
}

// raise records that fields of our minor version may be stored from now on.
func (s *conn) raise(ctx context.Context, h home, revision int64) error {
	h.Schema = schemaOf(schemaMinor)
	if _, err := s.etcd.Txn(ctx).If(unchanged(homeKey, revision)).Then(clientv3.OpPut(homeKey,
		encode(h))).Commit(); err != nil {
		return s.wrap(err, "raise %s", homeKey)
	}
	return s.enter(ctx, true) // a concurrent program may have raised it to another version
}

// decode reads a stored value strictly: an unknown field means that another program writes here, unless a newer minor
// version of croft does.
func (s *conn) decode(key, value []byte, v any) error {
	err := decodeStrictly(value, v)
	if err != nil && s.isNewer() {
		if err = json.Unmarshal(value, v); err == nil {
			s.unknown.note(string(key), v)
		}
	}
	if err != nil {
		return fmt.Errorf("decode %s: %w", key, err)
	}
	return nil
}

// isNewer reports whether programs of a newer minor version may have written records.
func (s *conn) isNewer() bool { return s.minor.Load() > schemaMinor || s.wasRaised() }

// keepUnknown is for values that other packages decode: it records whether the value has unknown fields.
func (s *conn) keepUnknown(key, value []byte, as any) {
	if decodeStrictly(value, as) != nil && json.Unmarshal(value, as) == nil {
		s.unknown.note(string(key), as)
	}
}

func decodeStrictly(value []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(value))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

// wasRaised reports whether a newer croft has raised the version since our last check; false if etcd does not answer.
func (s *conn) wasRaised() bool {
	ctx, cancel := context.WithTimeout(context.Background(), checkTime)
	defer cancel()
	got, err := s.etcd.Get(ctx, homeKey)
	if err != nil || len(got.Kvs) == 0 {
		return false
	}
	var h home
	if json.Unmarshal(got.Kvs[0].Value, &h) != nil {
		return false
	}
	minor, err := minorOf(h.Schema)
	if err != nil {
		return false
	}
	s.minor.Store(minor)
	return minor > schemaMinor
}

// knows reports whether a host's agent supports a minor version, according to the value of the host's alive key. Agents
// of 1.0 store only the time since which they are alive, and refuse orders that name a trace.
func knows(life []byte, minor int64) bool {
	_, version, _ := strings.Cut(string(life), " ")
	known, err := minorOf(version)
	return err == nil && known >= minor
}

// encodeOrder omits fields that readers of the stored schema version may not know, and from an order that
// takes the instance away everything that is not needed for that.
func (s *conn) encodeOrder(o croft.Order) string {
	if s.minor.Load() < tracesMinor {
		o.Trace = ""
	}
	if o.Want.Withdrawn() {
		o.Spec = croft.Spec{}
	}
	return encode(o)
}
