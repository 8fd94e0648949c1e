package trust

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/trust/pki"
)

// RotationStore is the part of the store that a rotation of the authority needs.
type RotationStore interface {
	Publisher

	// AllJoined returns the records of all hosts that joined.
	AllJoined(ctx context.Context) (map[croft.HostID]Joined, error)
}

// With opens the cloud's store as the host's own operator for the duration of a call.
type With func(ctx context.Context, do func(context.Context, RotationStore, Known) error) error

// Rotate creates new authorities, which sign from now on, and publishes them. Conflict: the last rotation is
// not finished. NotFound: the host has no authority. If only the last step fails, begun is true.
func (t *Credentials) Rotate(ctx context.Context, with With) (begun bool, err error) {
	if t.ca == nil {
		return false, errNoAuthority()
	}
	for _, a := range pki.Authorities {
		if _, old, err := t.ca.Certificates(a); err != nil {
			return false, err
		} else if old != nil {
			return false,
				croft.Errorf(croft.Conflict,
					"the authority before the present one is trusted still: croft ca rotate --finish")
		}
	}
	for _, a := range pki.Authorities {
		if err := t.ca.Rotate(a); err != nil {
			return false, err
		}
	}
	return true, t.spread(ctx, with)
}

// FinishRotation ends the trust in the former authorities. Conflict: a host still has a certificate of one, and
// force is not set. NotFound: no rotation is in progress. If only the last step fails, ended is true.
func (t *Credentials) FinishRotation(ctx context.Context, force bool, with With) (ended bool, err error) {
	if t.ca == nil {
		return false, errNoAuthority()
	}
	if !force && t.HasAny() {
		behind, err := t.behind(ctx, with)
		if err != nil {
			return false, err
		}
		if len(behind) > 0 {
			return false,
				croft.Errorf(croft.Conflict,
					"not renewed yet: %s; wait until they are, forget those that are gone (croft host remove), "+
						"or give --force, after which they have to join again", strings.Join(behind, ", "))
		}
	}
	for _, a := range pki.Authorities {
		switch err := t.ca.Retire(a); {
		case err == nil:
			ended = true
		case !errors.Is(err, croft.NotFound):
			return false, err
		}
	}
	if !ended {
		return false, croft.Errorf(croft.NotFound, "there is nothing to finish: croft ca rotate begins")
	}
	return true, t.spread(ctx, with)
}

func errNoAuthority() error {
	return croft.Errorf(croft.NotFound,
		"this host joined the cloud: its authority is on the host where croft up began it")
}

// spread renews this host's certificates and publishes the authority at once; a running process would do so
// only from time to time.
func (t *Credentials) spread(ctx context.Context, with With) error {
	if !t.HasAny() {
		return nil
	}
	if err := t.Ensure(ctx); err != nil {
		return err
	}
	return with(ctx, func(ctx context.Context, store RotationStore, _ Known) error { return t.Publish(ctx, store) })
}

// behind names the hosts that have certificates of a former authority.
func (t *Credentials) behind(ctx context.Context, with With) (names []string, err error) {
	err = with(ctx, func(ctx context.Context, store RotationStore, known Known) error {
		joined, err := store.AllJoined(ctx)
		if err != nil {
			return err
		}
		hosts, err := known.Hosts(ctx)
		if err != nil {
			return err
		}
		for _, a := range pki.Authorities {
			current, old, err := t.ca.Certificates(a)
			if err != nil {
				return err
			}
			for id, j := range joined {
				stamp, has := j.Certificates[string(a)]
				if old != nil && has && stamp.By != pki.Pin(current) {
					names = append(names, nameOf(hosts, id))
				}
			}
		}
		return nil
	})
	slices.Sort(names)
	return slices.Compact(names), err
}

// nameOf returns the name of a host, or its ID if the name is not known.
func nameOf(hosts map[croft.HostID]croft.Host, id croft.HostID) string {
	if h, known := hosts[id]; known && h.Name != "" {
		return h.Name
	}
	return string(id)
}

// IssueOperator creates a directory with an operator's certificates of all authorities, on the host that has
// the authorities. Conflict: the directory contains something else.
func IssueOperator(ctx context.Context, stateDir, name, dir string, life time.Duration) error {
	ca, err := pki.FindCA(CADir(stateDir))
	if err != nil {
		return err
	}
	ca.Life = life
	id := pki.OperatorIdentity(ca.Partition, name)
	if err := id.Validate(); err != nil {
		return err
	}
	if err := checkOperatorDir(dir, id); err != nil {
		return err
	}
	for _, a := range pki.Authorities {
		k := pki.Keeper{Files: pki.Files{Dir: dir, Authority: a}, Issuer: ca.For(id),
			Log: slog.New(slog.DiscardHandler)}
		if _, err := k.Renew(ctx, "an operator asked"); err != nil {
			return err
		}
	}
	return nil
}

// checkOperatorDir refuses a directory that contains anything except certificates issued to the same operator.
func checkOperatorDir(dir string, id pki.Identity) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return croft.Errorf(croft.Invalid, "--to: %w", err)
	}
	have, err := pki.Files{Dir: dir, Authority: pki.Etcd}.Identity()
	if err != nil || have != id {
		return croft.Errorf(croft.Conflict,
			"%s is not empty, and does not hold the certificates of %s: name another directory", dir, id.ID)
	}
	return nil
}
