package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"croft"
	"croft/compute"
	"croft/etcdstore"
	"croft/internal/endpoint"
	"croft/trust"
)

// serving is what this host serves for all: a server of etcd, alone or one of several,
// and Placement.
type serving struct {
	settings hostSettings
	log      *slog.Logger
	dir      *compute.StateDir
	host     croft.HostID
	of       *trust.Membership  // nil until another host serves
	own      *trust.Credentials // nil without certificates
	admitted *trust.Admission   // nil without certificates
}

// serving is what a host with these settings serves.
func (s *hostSettings) serving(ctx context.Context, dir *compute.StateDir, of *trust.Membership, log *slog.Logger) (*serving, error) {
	me := &serving{settings: *s, log: log, dir: dir, of: of}
	var err error
	if me.host, err = dir.HostID(); err != nil {
		return nil, err
	}
	if of != nil && !trust.HasAuthority(dir.Path) {
		me.own, err = joinedCredentials(of, dir.Path, log)
	} else {
		me.own, err = s.trustForEtcd(ctx, dir, log)
	}
	return me, err
}

// serve starts what is served beside etcd, and tells the others of it.
func (s *serving) serve(ctx context.Context, p *parts, store *etcdstore.Store) (err error) {
	begun := s.of == nil || trust.HasAuthority(s.dir.Path)
	if begun {
		s.own, err = s.settings.startTrust(ctx, p, s.own, s.dir, store, s.log)
	} else if s.own != nil {
		if err := s.of.FollowServers(ctx, s.own, store); err != nil {
			return err
		}
		p.self.counts(s.own)
		keepRenewed(ctx, p, s.own)
	}
	if err == nil && s.own != nil {
		s.admitted = admission(s.own, store)
	}
	if err == nil && s.settings.servesPlacement() {
		s.settings.Placement.Endpoint, err = startPlacement(ctx, p, store.Placement(etcdstore.EmbeddedTxnOps), s.settings, s.own, s.admitted, s.log)
	}
	if err != nil {
		return err
	}
	if s.of == nil {
		if s.of, err = s.founding(); err != nil {
			return err
		}
	}
	if err := errors.Join(s.tell(ctx, store), s.settings.useLocally(s.own)); err != nil {
		return err
	}
	if !begun {
		return s.settings.startOtherGate(ctx, p, s.own, s.admitted, store, s.log)
	}
	return s.settings.startJoins(ctx, p, s.own, s.admitted, store, s.log)
}

// joinPatience bounds how long a host waits for the others to let it be a member: they
// do so for one at a time, and not before they trust each other for some seconds.
const joinPatience = 2 * time.Minute

// slowStart is how long the others may take before it is said that they are waited for.
const slowStart = 5 * time.Second

func etcdDir(stateDir string) string { return filepath.Join(stateDir, "etcd") }

func hasEtcd(stateDir string) bool { return exists(etcdDir(stateDir)) }

// start runs the server and returns what to open the store with, once it has a voice
// among the others, of whom more than half have to be there. ErrRemoved: they took it
// out meanwhile.
func (s *serving) start(ctx context.Context) (_ *etcdstore.Embedded, _ etcdstore.Config, err error) {
	c := etcdstore.EmbeddedConfig{Dir: etcdDir(s.dir.Path), Host: s.host, PeerListen: s.settings.peerListen()}
	c.Peer, c.Advertise = endpoint.Outside(c.PeerListen), endpoint.Outside(s.settings.Etcd.Listen)
	if s.of != nil {
		if c.Cluster, err = s.introduce(ctx); err != nil {
			return nil, etcdstore.Config{}, err
		}
	}
	waiting := time.AfterFunc(slowStart, func() {
		s.log.Warn("etcd has not begun yet: more than half of its members have to be there", "host", s.host)
	})
	defer waiting.Stop()
	c.Log = s.log
	etcd, open, err := s.settings.startEtcd(ctx, c, s.own)
	if err != nil {
		return nil, open, err
	}
	if err := etcd.Promote(ctx); err != nil {
		etcd.Close()
		return nil, open, err
	}
	s.settings.Etcd.Endpoints = []string{etcd.Endpoint()}
	return etcd, open, nil
}

// introduce has the others know the server. One that has been started already needs
// that no more, and may be the one that they wait for.
func (s *serving) introduce(ctx context.Context) (cluster string, err error) {
	known := etcdstore.IsMember(etcdDir(s.dir.Path))
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
		is, err := others.IsEtcdMember(ctx, s.member())
		switch {
		case croft.KindOf(err) == croft.Unavailable:
			err = nil
		case err == nil && !is:
			err = etcdstore.ErrRemoved
		}
		return "", err
	}
	// A member that etcd knows of and that cannot start keeps others from joining.
	needed := map[string]string{"etcd.listen": s.settings.Etcd.Listen, "etcd.peer_listen": s.settings.peerListen()}
	if err := errors.Join(areFree(ctx, needed), etcdstore.ClearUnfinished(etcdDir(s.dir.Path))); err != nil {
		return "", err
	}
	return others.AddEtcdMember(ctx, s.member())
}

// others opens the store of the cloud that was joined.
func (s *serving) others(ctx context.Context) (*etcdstore.Store, error) {
	store, err := joinedEtcd(s.of, s.settings).Open(ctx, false)
	if err == nil && store.Partition() != s.of.Partition {
		err = errors.Join(s.of.ErrOther(), store.Close())
	}
	return store, err
}

// member is this host as the others are told of it before it serves anything.
func (s *serving) member() croft.EtcdMember {
	name, _ := os.Hostname() // for people
	return croft.EtcdMember{Host: s.host, Name: cmp.Or(s.settings.Host.Name, name), Peer: s.settings.peerURL()}
}

// tell writes what this host serves, for all hosts to know.
func (s *serving) tell(ctx context.Context, store *etcdstore.Store) error {
	m := s.member()
	m.Alone = s.settings.Hypervisor == noHypervisor
	for _, member := range s.settings.Etcd.Endpoints {
		m.Clients = append(m.Clients, endpoint.Outward(member))
	}
	if s.settings.servesPlacement() {
		m.Placement = endpoint.Outward(s.settings.Placement.Endpoint)
	}
	return store.PutEtcdMember(ctx, m)
}

// leaveEtcd makes this host one that serves nothing, after the others took its server out:
// its data is put aside. Conflict: they forgot the host itself.
func leaveEtcd(ctx context.Context, settings hostSettings, log *slog.Logger) (err error) {
	of, err := trust.ReadMembership(settings.StateDir) // as it is since others serve
	if err != nil || of == nil {
		return cmp.Or(err, etcdstore.ErrRemoved)
	}
	dir, err := compute.OpenStateDir(settings.StateDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	id, err := dir.HostID()
	if err != nil {
		return err
	}
	s := &serving{settings: over(of, settings), log: log, dir: dir, host: id, of: of}
	others, err := s.others(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, others.Close()) }()
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if is, err := others.IsEtcdMember(ctx, s.member()); err != nil || is {
		return cmp.Or(err, etcdstore.ErrRemoved)
	}
	return s.putAside(ctx, others)
}

// putAside notes that this host serves no longer, and who does.
func (s *serving) putAside(ctx context.Context, others *etcdstore.Store) error {
	serve, err := others.Served(ctx)
	if err != nil {
		return err
	}
	next, _ := s.of.With(serve, s.of.Partition)
	next.Etcd.Member = false
	// That it is none is noted first: a host without the data would join anew.
	if err := errors.Join(next.Write(s.dir.Path), asideEtcd(s.dir.Path)); err != nil {
		return err
	}
	s.log.Info("etcd goes on without this host", "host", s.host)
	if err := others.PutJoinServer(ctx, s.host, trust.JoinServer{}); err != nil {
		return err
	}
	known, err := others.Hosts(ctx, s.host)
	if err == nil && len(known) == 0 {
		err = croft.Errorf(croft.Conflict, "this host was forgotten, and its etcd with it; join again with a token, or remove %s", s.dir.Path)
	}
	return err
}

// asideEtcd renames the data of a server that was removed, if there is any.
func asideEtcd(stateDir string) error {
	aside := etcdDir(stateDir) + "-removed"
	if !hasEtcd(stateDir) {
		return nil
	}
	if err := errors.Join(os.RemoveAll(aside), os.Rename(etcdDir(stateDir), aside)); err != nil {
		return fmt.Errorf("put the data of the removed server aside: %w", err)
	}
	return nil
}

// peerURL is the address of our own etcd for the other members; empty where it can have
// none.
func (s *hostSettings) peerURL() string {
	switch {
	case s.peerListen() == "":
		return ""
	case s.ownsEtcdTrust() || s.Etcd.ListenCert != "" && s.Etcd.ListenClientCA != "":
		return "https://" + endpoint.Outside(s.peerListen())
	}
	return "http://" + endpoint.Outside(s.peerListen())
}

// peerListen is where our etcd listens for other members: beside where it listens for
// clients, if that is beyond this machine; empty where it can have no others.
func (s *hostSettings) peerListen() string {
	if s.Etcd.PeerListen != "" || endpoint.IsLoopback(s.Etcd.Listen) {
		return s.Etcd.PeerListen
	}
	host, port, err := net.SplitHostPort(s.Etcd.Listen)
	n, notPort := strconv.ParseUint(port, 10, 16)
	if err != nil || notPort != nil || n == 0 {
		return ""
	}
	return net.JoinHostPort(host, strconv.FormatUint(n+1, 10))
}
