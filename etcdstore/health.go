package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/internal/wording"
)

// checkTime bounds a health check of etcd or of one member. Members that need longer are treated as unreachable.
const checkTime = 2 * time.Second

// behind is the number of log entries that a member may lag before it is reported as slow.
const behind = 5000

// Usable returns why no orders can be written through etcd now; nil: orders are possible, and watches deliver. It costs
// two small requests and a watch.
func (s *conn) Usable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	if _, err := s.etcd.Get(ctx, homeKey, clientv3.WithKeysOnly()); err != nil {
		return s.wrap(err, "read %s", homeKey)
	}
	return errors.Join(append(s.alarms(ctx), s.watchable(ctx))...)
}

// watchable returns why watches deliver nothing; nil: they deliver. It starts another watch, which uses the same
// stream: the server announces it after everything else that is in the stream.
func (s *conn) watchable(ctx context.Context) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	select {
	case answer, ok := <-s.etcd.Watch(ctx, homeKey, clientv3.WithCreatedNotify()):
		if ok && answer.Err() == nil {
			return nil
		}
		if err := answer.Err(); err != nil {
			return s.wrap(err, "watch %s", homeKey)
		}
	case <-ctx.Done():
	}
	return croft.Errorf(croft.Unavailable,
		"etcd at %s: watch %s: nothing was delivered in time; restart this process if that lasts", s.endpoints, homeKey)
}

// alarms returns the alarms that the cluster has raised, one sentence each, or that a member's disk is nearly full.
func (s *conn) alarms(ctx context.Context) []error {
	list, err := s.etcd.AlarmList(ctx)
	if err != nil {
		return []error{s.wrap(err, "read the alarms")}
	}
	var found []error
	for _, raised := range []struct {
		alarm    pb.AlarmType
		sentence string
	}{{pb.AlarmType_NOSPACE, outOfSpace}, {pb.AlarmType_CORRUPT, corrupt}} {
		if slices.ContainsFunc(list.Alarms, func(a *pb.AlarmMember) bool { return a.Alarm == raised.alarm }) {
			found = append(found, croft.Errorf(croft.Unavailable, "etcd at %s is %s", s.endpoints, raised.sentence))
		}
	}
	if len(found) == 0 && s.lowDisk(ctx) {
		found = append(found, croft.Errorf(croft.Unavailable, "etcd at %s is %s", s.endpoints, diskFull))
	}
	return found
}

// Problems returns current and imminent problems of etcd, one sentence each: alarms, or a member that is silent, slow
// or nearly full.
func (s *EtcdCluster) Problems(ctx context.Context) []string {
	var found []string
	look, cancel := context.WithTimeout(ctx, checkTime)
	for _, err := range s.conn.alarms(look) {
		found = append(found, err.Error())
	}
	served, _ := s.Served(look) // if this fails, only the configured endpoints are used
	cancel()
	if len(served) == 2 {
		found = append(found,
			"etcd has two members and stops where either is lost: let a third host join with croft up --join - --etcd-member")
	}
	endpoints := s.known(served)
	statuses, silent := s.conn.statuses(ctx, endpoints)
	for _, endpoint := range silent {
		found = append(found,
			fmt.Sprintf("etcd at %s does not answer within %s: look at that member, its disk and the network to it",
				endpoint, wording.Duration(checkTime)))
	}
	var newest uint64
	for _, status := range statuses {
		newest = max(newest, status.RaftIndex)
	}
	for _, endpoint := range endpoints {
		if status := statuses[endpoint]; status != nil {
			found = append(found, troubles(endpoint, status, newest)...)
		}
	}
	return found
}

// known returns the endpoints of members: the configured ones, and the endpoints of these hosts.
func (s *EtcdCluster) known(served []croft.EtcdMember) []string {
	all := slices.Clone(s.conn.etcd.Endpoints())
	for _, m := range served {
		all = append(all, m.Clients...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// statuses asks the members at these endpoints for their status, concurrently.
func (s *conn) statuses(ctx context.Context, endpoints []string) (statuses map[string]*clientv3.StatusResponse,
	silent []string) {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	type answer struct {
		endpoint string
		status   *clientv3.StatusResponse
	}
	answers := make(chan answer, len(endpoints))
	for _, endpoint := range endpoints {
		go func() {
			status, err := s.etcd.Status(ctx, endpoint)
			if err != nil {
				status = nil
			}
			answers <- answer{endpoint, status}
		}()
	}
	statuses = map[string]*clientv3.StatusResponse{}
	for range endpoints {
		if a := <-answers; a.status == nil {
			silent = append(silent, a.endpoint)
		} else {
			statuses[a.endpoint] = a.status
		}
	}
	slices.Sort(silent)
	return statuses, silent
}

// troubles returns the problems in a member's status. newest is the end of the log as known to the members.
func troubles(endpoint string, m *clientv3.StatusResponse, newest uint64) []string {
	var found []string
	if m.Leader == 0 {
		found = append(found,
			fmt.Sprintf("etcd at %s has no leader: bring members back until more than half of them run",
				endpoint))
	}
	if m.RaftAppliedIndex+behind < newest {
		found = append(found,
			fmt.Sprintf("etcd at %s is slow, %d entries behind the others: look at its disk and the network to it",
				endpoint, newest-m.RaftAppliedIndex))
	}
	if m.DbSizeQuota > 0 && m.DbSize >= m.DbSizeQuota/5*4 {
		found = append(found,
			fmt.Sprintf(
				"etcd at %s has filled %d of its %d MiB, and takes no writes once they are full: compact and defragment it, or raise its quota",
				endpoint, m.DbSize>>20, m.DbSizeQuota>>20))
	}
	return found
}
