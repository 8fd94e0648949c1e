package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"croft"
	"croft/compute"
	"croft/etcdstore/etcdserver"
	"croft/node/settings"
	"croft/trust"
	"croft/trust/invitation"
)

// Join makes the host of a state directory join the cloud of the token, from its next start on; with member it will
// also serve etcd. After an error, nothing has changed.
func Join(ctx context.Context, s settings.Settings, text string, member bool, words io.Writer) error {
	token, err := invitation.Parse(text)
	if err != nil {
		return err
	}
	before, err := mayJoin(s.StateDir, token.Partition)
	if err != nil {
		return err
	}
	if before.IsMember() && etcdserver.IsMember(EtcdDir(s.StateDir)) {
		// A retry must not ask etcd, which may be waiting for this very host.
		fmt.Fprintln(words, "this host has an etcd member of that cloud already; if the cloud removed the member, "+
			"start croft up, which puts its data aside, and join once more")
		return nil
	}
	if before != nil && !before.IsMember() && HasEtcd(s.StateDir) {
		if err := withStateDir(s.StateDir, func(*compute.StateDir) error { return asideEtcd(s.StateDir) }); err != nil {
			return err // remains of an interrupted removal
		}
	}
	j := &trust.Membership{Partition: token.Partition}
	j.Etcd.Member, j.Etcd.Insecure = member || before.IsMember(), s.Etcd.Insecure
	if len(token.Servers) > 0 {
		err := enrol(ctx, j, s, token)
		if errors.Is(err, croft.Conflict) && isEnrolled(s.StateDir) && before.IsMember() == j.Etcd.Member {
			fmt.Fprintln(words, "this host is one of that cloud already")
			return nil
		}
		if err != nil {
			return err
		}
	} else if err := accept(ctx, j, s, token); err != nil {
		return err
	}
	fmt.Fprintf(words, "this host is one of the cloud at %s from now on; croft up needs no token again\n", j.At())
	return nil
}

// enrol gets certificates from a join server and stores them. The membership is written last, so that after a
// crash the host may retry.
func enrol(ctx context.Context, j *trust.Membership, s settings.Settings, token invitation.JoinToken) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	id, err := compute.ReadHostID(s.StateDir, false)
	if errors.Is(err, croft.NotFound) {
		id, err = croft.NewHostID(), nil
	}
	if err != nil {
		return err
	}
	var names []string
	if j.Etcd.Member {
		names = s.Servers(nil).Names()
	}
	got, err := trust.Enrol(ctx, token, id, names)
	if err != nil {
		return err
	}
	j.Servers, j.Trust = token.Servers, got.Trust
	j.Take(got.Grant)
	if err := checkMember(j, &s); err != nil {
		return err
	}
	return withStateDir(s.StateDir, func(dir *compute.StateDir) error {
		if err := dir.KeepHostID(id); err != nil {
			return err
		}
		return cmp.Or(got.Keep(dir.Path), j.Write(dir.Path))
	})
}

// isEnrolled reports whether a host joined before and its certificates are still valid.
func isEnrolled(stateDir string) bool {
	j, err := trust.ReadMembership(stateDir)
	if err != nil || !j.HasCertificates() {
		return false
	}
	_, err = joinedCredentials(j, stateDir, slog.New(slog.DiscardHandler))
	return err == nil
}

// checkMember checks that a host can serve etcd and Placement.
func checkMember(j *trust.Membership, s *settings.Settings) error {
	if !j.Etcd.Member {
		return nil
	}
	if j.Placement.Endpoint == "" && s.Placement.Cloud == "" {
		return croft.Errorf(croft.Invalid,
			"the cloud uses OpenStack's Placement: set placement.cloud, with which this host reaches it")
	}
	servers, reach := s.Servers(j), s.Reach(j)
	if servers.Peer() == "" {
		return croft.Errorf(croft.Invalid,
			"etcd.peer_listen is not set, and etcd.listen (%s) has no port beside it that others reach: say where the other members reach this one", servers.Etcd)
	}
	if j.HasCertificates() {
		return preparePlacement(s, servers, &reach)
	}
	return errors.Join(servers.CheckEtcd(), preparePlacement(s, servers, &reach))
}

// mayJoin refuses a host that has its own cloud, or belongs to another one. It returns the earlier membership.
func mayJoin(stateDir string, p croft.PartitionID) (*trust.Membership, error) {
	before, err := trust.ReadMembership(stateDir)
	if err != nil {
		return nil, err
	}
	if before == nil && HasEtcd(stateDir) {
		return nil,
			croft.Errorf(croft.Conflict,
				"%s has a cloud of its own, with its instances: destroy those and remove the directory, or give another with --state-dir", stateDir)
	}
	if before != nil && before.Partition != p {
		err = croft.Errorf(croft.Conflict,
			"%s is of another cloud, at %s: have it forgotten there (croft host remove) and remove the directory, or give another with --state-dir",
			stateDir, before.At())
	}
	return before, err
}

// accept exchanges the token for its grant, in a cloud without an authority: the host reads etcd itself.
func accept(ctx context.Context, j *trust.Membership, s settings.Settings, token invitation.JoinToken) (err error) {
	etcd := s.Etcd.EtcdSettings
	etcd.Endpoints = token.Endpoints
	if etcd.CA == "" {
		etcd.CAPEM = token.CA
	}
	store, err := etcd.Open(ctx, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if store.Partition() != token.Partition {
		return croft.Errorf(croft.Invalid,
			"etcd at %s holds another cloud than this token's: make another token with `croft token create`",
			token.Endpoints[0])
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	invited, err := store.Trust.Invitation(ctx, token.Name())
	if err != nil {
		return err
	}
	grant, err := token.Open(invited.Sealed)
	if err != nil {
		return err
	}
	grant.Endpoints = token.Endpoints
	j.Etcd.CA = token.CA
	j.Take(grant)
	if err := checkMember(j, &s); err != nil {
		return err
	}
	return withStateDir(s.StateDir, func(*compute.StateDir) error { return j.Write(s.StateDir) })
}

// withStateDir calls do while no croft runs in the state directory.
func withStateDir(path string, do func(*compute.StateDir) error) (err error) {
	dir, err := compute.OpenStateDir(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	return do(dir)
}

// RestoreEtcd recreates the etcd of a host from a snapshot, as the only member of the cloud. Invalid: there is no
// such file. Conflict: the host runs, or has an etcd.
func RestoreEtcd(stateDir, snapshot string) error {
	if _, err := os.Stat(snapshot); err != nil {
		return croft.Errorf(croft.Invalid, "read the snapshot: %w", err)
	}
	return withStateDir(stateDir, func(dir *compute.StateDir) error {
		id, err := dir.HostID()
		if err == nil {
			err = etcdserver.Restore(snapshot, EtcdDir(dir.Path), id)
		}
		return err
	})
}
