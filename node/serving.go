package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"croft"
	"croft/compute"
	"croft/etcdstore"
	"croft/etcdstore/etcdserver"
	"croft/internal/endpoint"
	"croft/node/settings"
	"croft/placement"
	"croft/trust"
)

// serving holds the services of this host for the whole cloud: etcd, alone or as one of several members, and Placement.
type serving struct {
	settings *settings.Settings
	servers  settings.Servers
	reach    settings.Reach // through the other members, until etcd runs here
	log      *slog.Logger
	dir      *compute.StateDir
	host     croft.HostID
	of       *trust.Membership  // nil until another host serves
	own      *trust.Credentials // nil: no certificates are configured
	admitted *trust.Admission   // nil: no certificates are configured

	placement *placement.Server // nil: not served by this process
}

// newServing returns the services of a host with these settings, not yet started.
func newServing(ctx context.Context, s *settings.Settings, servers settings.Servers, reach settings.Reach,
	dir *compute.StateDir, log *slog.Logger) (*serving, error) {
	of := reach.Joined
	me := &serving{settings: s, servers: servers, reach: reach, log: log, dir: dir, of: of}
	var err error
	if me.host, err = dir.HostID(); err != nil {
		return nil, err
	}
	if of != nil && !trust.HasAuthority(dir.Path) {
		me.own, err = joinedCredentials(of, dir.Path, log)
	} else {
		me.own, err = trustForEtcd(ctx, s, servers, dir, log)
	}
	return me, err
}

// serve starts the services besides etcd and publishes their addresses.
func (s *serving) serve(ctx context.Context, p *Parts, store *etcdstore.Store) (err error) {
	begun := s.of == nil || trust.HasAuthority(s.dir.Path)
	if begun {
		err = s.startTrust(ctx, p, store)
	} else if s.own != nil {
		if err := s.of.FollowServers(ctx, s.own, store.Trust); err != nil {
			return err
		}
		p.Self.Counts(s.own)
		keepRenewed(ctx, p, s.own)
	}
	if err == nil && s.own != nil {
		s.admitted = admission(s.own, store)
	}
	if err == nil && s.settings.ServesPlacement() {
		err = s.startPlacement(ctx, p, store, etcdserver.TxnOps)
	}
	if err != nil {
		return err
	}
	if s.of == nil {
		if s.of, err = s.founding(); err != nil {
			return err
		}
	}
	if err := errors.Join(s.publish(ctx, store), useLocally(s.dir.Path, &s.reach, s.own)); err != nil {
		return err
	}
	if !begun {
		return s.startOtherGate(ctx, p, store)
	}
	return s.startJoins(ctx, p, store)
}

// joinPatience bounds how long a host waits to become a member of etcd: members are added one at a time, and only
// after the others have been connected for some seconds.
const joinPatience = 2 * time.Minute

// answerTimeout bounds a request to the cloud that needs no waiting.
const answerTimeout = 30 * time.Second

// slowStart is the delay before a message says that the host waits for the others.
const slowStart = 5 * time.Second

func EtcdDir(stateDir string) string { return filepath.Join(stateDir, "etcd") }

func HasEtcd(stateDir string) bool { return exists(EtcdDir(stateDir)) }

// start runs the server of etcd and returns the configuration for opening the store, once the server is a voter. A
// majority of the other members must run. ErrRemoved: they removed this member meanwhile.
func (s *serving) start(ctx context.Context) (_ *etcdserver.Server, _ etcdstore.Config, err error) {
	c := etcdserver.Config{Dir: EtcdDir(s.dir.Path), Host: s.host, PeerListen: s.servers.Peer()}
	c.Peer, c.Advertise = endpoint.Outside(c.PeerListen), endpoint.Outside(s.servers.Etcd)
	if s.of != nil {
		if c.Cluster, err = s.introduce(ctx); err != nil {
			return nil, etcdstore.Config{}, err
		}
	}
	text := "etcd has not started yet: more than half of its members have to run"
	if s.of == nil && etcdserver.Members(c.Dir) <= 1 {
		text = "etcd has not started yet: it is still reading its files"
	}
	waiting := time.AfterFunc(slowStart, func() { s.log.Warn(text, "host", s.host) })
	defer waiting.Stop()
	c.Log = s.log
	etcd, open, err := StartEtcd(ctx, s.settings, s.servers, c, s.own)
	if err != nil {
		return nil, open, err
	}
	if err := etcd.Promote(ctx); err != nil {
		etcd.Close()
		return nil, open, err
	}
	s.reach.Etcd.Endpoints = []string{etcd.Endpoint()}
	return etcd, open, nil
}

// introduce adds this host's server to the members of etcd. A server that has run before is already a member, and the
// others may be waiting for it.
func (s *serving) introduce(ctx context.Context) (cluster string, err error) {
	known := etcdserver.IsMember(EtcdDir(s.dir.Path))
	others, err := s.others(ctx)
	if known && croft.KindOf(err) == croft.Unavailable {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, others.Close()) }()
	ctx, cancel := context.WithTimeout(ctx, joinPatience)
	defer cancel()
	if known {
		is, err := others.Cluster.IsEtcdMember(ctx, s.member())
		switch {
		case croft.KindOf(err) == croft.Unavailable:
			err = nil
		case err == nil && !is:
			err = etcdserver.ErrRemoved
		}
		return "", err
	}
	// A registered member that cannot start prevents others from joining.
	needed := map[string]string{"etcd.listen": s.servers.Etcd, "etcd.peer_listen": s.servers.Peer()}
	if err := errors.Join(areFree(ctx, needed), etcdserver.ClearUnfinished(EtcdDir(s.dir.Path))); err != nil {
		return "", err
	}
	return others.Cluster.AddEtcdMember(ctx, s.member())
}

// others opens the store of the joined cloud.
func (s *serving) others(ctx context.Context) (*etcdstore.Store, error) {
	store, err := s.reach.Etcd.Open(ctx, false)
	if err == nil && store.Partition() != s.of.Partition {
		err = errors.Join(s.of.ErrOther(), store.Close())
	}
	return store, err
}

// member returns the record of this host as a member of etcd, before it serves anything.
func (s *serving) member() croft.EtcdMember {
	name, _ := os.Hostname() // for people
	return croft.EtcdMember{Host: s.host, Name: cmp.Or(s.settings.Host.Name, name), Peer: s.servers.PeerURL()}
}

// publish stores the addresses where this host serves etcd and Placement, for all hosts.
func (s *serving) publish(ctx context.Context, store *etcdstore.Store) error {
	m := s.member()
	m.Alone = s.settings.Hypervisor == settings.NoHypervisor
	for _, member := range s.reach.Etcd.Endpoints {
		m.Clients = append(m.Clients, endpoint.Outward(member))
	}
	if s.settings.ServesPlacement() {
		m.Placement = endpoint.Outward(s.reach.Placement.Endpoint)
	}
	return store.Cluster.PutEtcdMember(ctx, m)
}

// leaveEtcd stops serving etcd for good after the others removed this member: it renames the data. Conflict: the
// host itself was forgotten.
func leaveEtcd(ctx context.Context, had settings.Settings, log *slog.Logger) (err error) {
	of, err := trust.ReadMembership(had.StateDir) // as rewritten when other members were added
	if err != nil || of == nil {
		return cmp.Or(err, etcdserver.ErrRemoved)
	}
	dir, err := compute.OpenStateDir(had.StateDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	id, err := dir.HostID()
	if err != nil {
		return err
	}
	s := &serving{settings: &had, servers: had.Servers(of), reach: had.Reach(of), log: log, dir: dir, host: id, of: of}
	others, err := s.others(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, others.Close()) }()
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if is, err := others.Cluster.IsEtcdMember(ctx, s.member()); err != nil || is {
		return cmp.Or(err, etcdserver.ErrRemoved)
	}
	return s.putAside(ctx, others)
}

// putAside records that this host no longer serves etcd, and which hosts do.
func (s *serving) putAside(ctx context.Context, others *etcdstore.Store) error {
	serve, err := others.Cluster.Served(ctx)
	if err != nil {
		return err
	}
	next, _ := s.of.With(serve, s.of.Partition)
	next.Etcd.Member = false
	// The membership is written first: a host without the data would join again.
	if err := errors.Join(next.Write(s.dir.Path), asideEtcd(s.dir.Path)); err != nil {
		return err
	}
	s.log.Info("this host was removed from etcd's members", "host", s.host)
	if err := others.Trust.PutJoinServer(ctx, s.host, trust.JoinServer{}); err != nil {
		return err
	}
	known, err := others.Registry.Hosts(ctx, s.host)
	if err == nil && len(known) == 0 {
		err = croft.Errorf(croft.Conflict,
			"this host was forgotten, and its etcd with it; join again with a token, or remove %s", s.dir.Path)
	}
	return err
}

// asideEtcd renames the data of a removed member, if there is any.
func asideEtcd(stateDir string) error {
	aside := EtcdDir(stateDir) + "-removed"
	if !HasEtcd(stateDir) {
		return nil
	}
	if err := errors.Join(os.RemoveAll(aside), os.Rename(EtcdDir(stateDir), aside)); err != nil {
		return fmt.Errorf("put the data of the removed server aside: %w", err)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
