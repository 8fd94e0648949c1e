package requests

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"croft"
	"croft/cluster"
	"croft/cluster/survey"
	"croft/internal/delay"
	"croft/tenant"
)

// maxTries bounds the tries of a write that loses against concurrent ones.
const maxTries = 50

// Create requests a cluster, and returns when it is on record; or it returns an existing cluster that can be reused.
// *cluster.ChoiceError: no site can build it. Conflict: the name is taken, or the ID belongs to another request.
// Invalid. OverQuota. A request with an ID may be repeated: nothing is created twice. Joining an existing cluster asks
// no site.
func (s *Service) Create(ctx context.Context, r cluster.Request) (cluster.Created, error) {
	if err := s.check(ctx, &r); err != nil {
		return cluster.Created{}, err
	}
	if r.ID != "" {
		c, err := s.made(ctx, r)
		if err == nil || !errors.Is(err, croft.NotFound) {
			return c, err
		}
	} else {
		r.ID = croft.NewClusterID()
	}
	var found *survey.Result // read once for all tries
	for try := range maxTries {
		latest, err := s.c.Records.Latest(ctx, r.Project, r.User, r.Appliance)
		if err != nil {
			return cluster.Created{}, err
		}
		// Clusters to join are read after latest: if one is created in between, Create of the store fails.
		if joined, err := s.joinAny(ctx, r); err != nil || joined.Reused {
			return joined, err
		}
		if found == nil {
			if found, err = s.look(ctx, r); err != nil {
				return cluster.Created{}, err
			}
		}
		made, err := s.put(ctx, r, *found, latest)
		if err == nil || !errors.Is(err, croft.Conflict) {
			return made, err
		}
		if again, errLatest := s.c.Records.Latest(ctx, r.Project, r.User, r.Appliance); errLatest != nil {
			return cluster.Created{}, errLatest
		} else if again == latest {
			return cluster.Created{}, err // no concurrent request: the name or the ID belongs to another cluster
		}
		if err := pause(ctx, try); err != nil {
			return cluster.Created{}, err
		}
	}
	return cluster.Created{}, croft.Errorf(croft.Unavailable, "cluster %s: too many others ask for appliance %s now",
		r.Name, cluster.ApplianceName(r.Appliance))
}

// check validates a request, and sets the unique name of its appliance. Invalid. NotFound.
func (s *Service) check(ctx context.Context, r *cluster.Request) error {
	if err := r.Check(); err != nil {
		return err
	}
	a, err := s.appliance(ctx, r.Project, r.Appliance)
	if err != nil {
		return err
	}
	r.Appliance = a.Name
	return cluster.CheckSlaves(r.Slaves, a.MinSlaves)
}

// look returns the candidates for a request. *cluster.ChoiceError.
func (s *Service) look(ctx context.Context, r cluster.Request) (*survey.Result, error) {
	found, err := s.survey.Look(ctx, r, nil, "")
	if err != nil {
		return nil, err
	}
	if len(found.Candidates) == 0 {
		return nil, &cluster.ChoiceError{Dropped: found.Dropped}
	}
	return &found, nil
}

// put writes the record of a new cluster. If the answer is lost, it repeats the write, which finds the ID taken if the
// first one took effect.
func (s *Service) put(ctx context.Context, r cluster.Request, found survey.Result, latest int64) (
	cluster.Created, error) {
	c, err := s.record(r, found)
	if err != nil {
		return cluster.Created{}, err
	}
	for try := range lostTries {
		var made cluster.Cluster
		made, err = s.c.Records.Create(ctx, c, latest)
		if taken, is := errors.AsType[*croft.TakenError](err); is && taken.What == "id" {
			return s.made(ctx, r)
		}
		if err == nil {
			s.note(ctx, made, "%s asked for a cluster of %s with %d slaves", r.User, cluster.ApplianceName(r.Appliance),
				r.Slaves)
			return cluster.Created{Cluster: made}, nil
		}
		if !lost(err) {
			return cluster.Created{}, err
		}
		if err := pause(ctx, try); err != nil {
			return cluster.Created{}, err
		}
	}
	return cluster.Created{}, err
}

// lostTries is how often a write is tried whose answer is lost.
const lostTries = 5

// lost reports whether a write may have taken effect although it failed.
func lost(err error) bool {
	return errors.Is(err, croft.Unavailable) || errors.Is(err, context.DeadlineExceeded)
}

// record returns the record of a new cluster.
func (s *Service) record(r cluster.Request, found survey.Result) (cluster.Cluster, error) {
	now := time.Now().UTC()
	c := cluster.Cluster{ID: r.ID, Name: r.Name, Project: r.Project, User: r.User, Appliance: r.Appliance,
		Digest: r.Digest(), Hints: r.Hints, Keys: r.Keys, Slaves: r.Slaves, Indexes: []int{}, NextIndex: r.Slaves,
		State: cluster.Scheduling, Step: "choosing a site", Members: []cluster.Member{}, Why: found.Dropped,
		Uses: []cluster.Use{newUse(r, now)}, KeepIdle: r.KeepIdle, Created: now, Updated: now, Generation: 1}
	for i := range r.Slaves {
		c.Indexes = append(c.Indexes, i)
	}
	if r.Expires > 0 {
		c.Expires = now.Add(time.Duration(r.Expires))
	}
	var contracts []cluster.Contract
	for _, contract := range found.Contracts {
		contracts = append(contracts, contract)
	}
	hidden := cluster.HiddenIn(r.Parameters, contracts...)
	return cluster.SealParameters(s.c.Vault, s.c.Partition, c, r.Parameters, hidden)
}

// made returns the cluster that an earlier request with the same ID created. NotFound: none exists. Conflict: that
// request was another one.
func (s *Service) made(ctx context.Context, r cluster.Request) (cluster.Created, error) {
	c, err := s.c.Records.Get(ctx, r.ID)
	if err != nil {
		return cluster.Created{}, err
	}
	wanted := maps.Clone(r.Parameters)
	taken := &croft.TakenError{What: "id", By: string(r.ID),
		Text: fmt.Sprintf("the ID %s was used for another request", r.ID)}
	if c.Project != r.Project || c.User != r.User || c.Digest != r.Digest() {
		return cluster.Created{}, taken
	}
	given, err := cluster.GivenParameters(s.c.Vault, s.c.Partition, c)
	if err != nil {
		return cluster.Created{}, err
	}
	if c.State == cluster.Deleted { // sealed parameters are gone: only the others can be compared
		maps.DeleteFunc(wanted, func(name string, _ any) bool { _, open := given[name]; return !open })
	}
	if !cluster.SameParameters(given, wanted) {
		return cluster.Created{}, taken
	}
	return cluster.Created{Cluster: c, Reused: true}, nil
}

// pause waits before another try, for times that keep competing requests apart.
func pause(ctx context.Context, try int) error {
	return delay.For(ctx, time.Duration(try+1)*5*time.Millisecond)
}

// Explain returns where a request would be built. It changes nothing. The name may be empty.
func (s *Service) Explain(ctx context.Context, r cluster.Request) (cluster.Explanation, error) {
	r.Name = cmp.Or(r.Name, "a")
	if err := s.check(ctx, &r); err != nil {
		return cluster.Explanation{}, err
	}
	r.ID = cmp.Or(r.ID, croft.NewClusterID())
	joined, err := s.joinable(ctx, r)
	if err != nil {
		return cluster.Explanation{}, err
	}
	var there cluster.Cluster
	if len(joined) > 0 {
		there = joined[0]
	}
	found, err := s.survey.Look(ctx, r, nil, there.Site)
	if err != nil {
		return cluster.Explanation{}, err
	}
	quota := ""
	if len(joined) == 0 {
		if quota, err = s.overQuota(ctx, r.Project); err != nil {
			return cluster.Explanation{}, err
		}
	}
	e := cluster.Explanation{Candidates: cluster.Choices(found.Candidates), Dropped: found.Dropped, Reuse: there.Name,
		Quota: quota}
	if e.Dropped == nil {
		e.Dropped = []cluster.Dropped{}
	}
	return e, nil
}

// overQuota says why the quota does not allow another cluster; empty: it does.
func (s *Service) overQuota(ctx context.Context, project croft.Project) (string, error) {
	if s.c.Quotas == nil {
		return "", nil
	}
	err := s.c.Quotas.Admit(ctx, project, tenant.Amounts{tenant.CountClusters: 1})
	if errors.Is(err, croft.OverQuota) {
		return err.Error(), nil
	}
	return "", err
}
